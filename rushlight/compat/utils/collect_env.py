"""PyTorch's `torch.utils.collect_env`: what a report of a fault should tell of the machine."""

from __future__ import annotations

import importlib.metadata
import locale
import os
import platform
import subprocess
import sys
from typing import Any, NamedTuple

from rushlight import cuda
from rushlight.compat.version import __version__ as followed
from rushlight.version import __version__

_PACKAGES = """
    rushlight numpy cupy llvmlite ml_dtypes mypy onnx optree safetensors torch torchaudio
    torchvision triton wgpu
"""


class SystemEnv(NamedTuple):
    """The facts, each as text; None where it is not known."""

    torch_version: str
    rushlight_version: str
    is_debug_build: str
    cuda_compiled_version: str | None
    hip_compiled_version: str | None
    os: str
    gcc_version: str | None
    clang_version: str | None
    cmake_version: str | None
    libc_version: str | None
    python_version: str
    python_platform: str
    is_cuda_available: str
    cuda_runtime_version: str | None
    nvidia_driver_version: str | None
    nvidia_gpu_models: str | None
    cpu_info: str
    pip_version: str
    pip_packages: str


def run(command: str | list[str]) -> tuple[int, str, str]:
    """The exit status, output and errors of a command; 127 where there is no such command.

    Args:
        command (str or list): A line for the shell, or the words.
    """
    try:
        done = subprocess.run(
            command, shell=isinstance(command, str), capture_output=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, "", str(error)
    known = locale.getpreferredencoding()
    texts = [text.decode(known, "replace").strip() for text in (done.stdout, done.stderr)]
    return done.returncode, texts[0], texts[1]


def run_and_read_all(run_lambda: object, command: str | list[str]) -> str | None:
    """The output of a command; None where it failed."""
    status, output, _ = run_lambda(command) if callable(run_lambda) else run(command)
    return None if status else output


def _first_line(*words: str) -> str | None:
    """The first line that a command prints."""
    status, output, _ = run(list(words))
    return output.splitlines()[0] if not status and output else None


def get_platform() -> str:
    """linux, darwin or win32."""
    return sys.platform


def get_python_platform() -> str:
    """Python's words for the system."""
    return platform.platform()


def get_os(run_lambda: object = None) -> str:
    """The system, its release and the machine."""
    if platform.system() == "Linux":
        try:
            name = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
        except OSError:
            name = "Linux"
        return f"{name} ({platform.machine()})"
    return f"{platform.system()} {platform.release()} ({platform.machine()})"


def get_libc_version() -> str | None:
    """The C library."""
    found = "-".join(platform.libc_ver())
    return found if found != "-" else None


def processor(run_lambda: object = None) -> str:
    """The processor's name and how many cores this process may use."""
    name = platform.processor()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = [line for line in file if line.startswith("model name")]
        name = lines[0].partition(":")[2].strip() if lines else name
    except OSError:
        pass
    return f"{name or platform.machine()}, {os.cpu_count()} logical cores"


def cards(run_lambda: object = None) -> str | None:
    """The names of the cards that "cuda" stands for."""
    if not cuda.is_available():
        return None
    return "\n".join(f"GPU {n}: {cuda.get_device_name(n)}" for n in range(cuda.device_count()))


def get_nvidia_driver_version(run_lambda: object = None) -> str | None:
    """The driver's version, as nvidia-smi tells it."""
    return _first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


def get_pip_packages(run_lambda: object = None, patterns: object = None) -> tuple[str, str]:
    """pip's name, and the versions of the packages that matter here."""
    wanted: Any = _PACKAGES.split() if patterns is None else patterns
    found = {}
    for one in importlib.metadata.distributions():
        name = (one.metadata["Name"] or "").lower()
        if any(word in name.replace("_", "-").split("-") or word == name for word in wanted):
            found[name] = one.version
    return f"pip{sys.version_info.major}", "\n".join(f"{n}=={found[n]}" for n in sorted(found))


def gathered() -> SystemEnv:
    """The facts of this process and its machine."""
    pip, packages = get_pip_packages()
    return SystemEnv(
        torch_version=str(followed),
        rushlight_version=__version__,
        is_debug_build="False",
        cuda_compiled_version=None,
        hip_compiled_version=None,
        os=get_os(),
        gcc_version=_first_line("gcc", "--version"),
        clang_version=_first_line("clang", "--version"),
        cmake_version=_first_line("cmake", "--version"),
        libc_version=get_libc_version(),
        python_version=f"{sys.version} ({64 if sys.maxsize > 1 << 32 else 32}-bit runtime)",
        python_platform=get_python_platform(),
        is_cuda_available=str(cuda.is_available()),
        cuda_runtime_version=None,
        nvidia_driver_version=get_nvidia_driver_version(),
        nvidia_gpu_models=cards(),
        cpu_info=processor(),
        pip_version=pip,
        pip_packages=packages,
    )


def pretty_str(envinfo: SystemEnv) -> str:
    """The facts as lines.

    Args:
        envinfo (SystemEnv): What `gathered` gave.
    """
    env = envinfo._replace(
        **{name: "Not known" for name, value in envinfo._asdict().items() if value is None}
    )
    return f"""\
PyTorch version: {env.torch_version} (names and behaviour; the engine is Rushlight {__version__})
Is debug build: {env.is_debug_build}
CUDA used to build PyTorch: N/A (kernels are compiled for the present driver)
ROCM used to build PyTorch: N/A

OS: {env.os}
GCC version: {env.gcc_version}
Clang version: {env.clang_version}
CMake version: {env.cmake_version}
Libc version: {env.libc_version}

Python version: {env.python_version}
Python platform: {env.python_platform}
Is CUDA available: {env.is_cuda_available}
GPU models and configuration: {env.nvidia_gpu_models}
Nvidia driver version: {env.nvidia_driver_version}

CPU: {env.cpu_info}

Versions of relevant libraries:
{env.pip_packages}"""


def gathered_lines() -> str:
    """The facts of this process and its machine as lines."""
    return pretty_str(gathered())


def main() -> None:
    """Print them."""
    print("Collecting environment information...")
    print(gathered_lines())


get_cpu_info, get_gpu_info = processor, cards
get_env_info, get_pretty_env_info = gathered, gathered_lines

if __name__ == "__main__":
    main()
