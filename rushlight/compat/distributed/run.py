"""PyTorch's `torch.distributed.run` (torchrun): its options, for `rushlight launch`.

`python -m torch.distributed.run --nproc-per-node 4 train.py` starts the same processes. Hosts that
join and leave while a program runs are refused.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from rushlight import cuda
from rushlight.core.errors import RushlightError
from rushlight.distributed.environment import core_count


def _option(parser: argparse.ArgumentParser, name: str, **named: Any) -> None:
    parser.add_argument(f"--{name}", f"--{name.replace('-', '_')}", **named)


def get_args_parser() -> argparse.ArgumentParser:
    """The options of torchrun that have a meaning here, or have no effect."""
    parser = argparse.ArgumentParser(description="Start a program in several processes.")
    _option(parser, "nnodes", default="1:1")
    _option(parser, "nproc-per-node", default="1")
    _option(parser, "rdzv-backend", default="static")
    _option(parser, "rdzv-endpoint", default="")
    _option(parser, "rdzv-id", default="none")
    _option(parser, "rdzv-conf", default="")
    parser.add_argument("--standalone", action="store_true")
    _option(parser, "max-restarts", type=int, default=0)
    _option(parser, "monitor-interval", type=float, default=0.1)
    _option(parser, "start-method", default="spawn", choices=["spawn", "fork", "forkserver"])
    _option(parser, "role", default="default")
    parser.add_argument("-m", "--module", action="store_true")
    _option(parser, "no-python", action="store_true")
    _option(parser, "run-path", action="store_true")
    _option(parser, "log-dir", default=None)
    parser.add_argument("-r", "--redirects", default="0")
    parser.add_argument("-t", "--tee", default="0")
    _option(parser, "node-rank", type=int, default=0)
    _option(parser, "master-addr", default="127.0.0.1")
    _option(parser, "master-port", type=int, default=29500)
    _option(parser, "local-addr", default=None)
    parser.add_argument("training_script")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser


def parse_args(args: Sequence[str] | None) -> argparse.Namespace:
    """The options.

    Args:
        args (list): The words; those of the command line without it.
    """
    return get_args_parser().parse_args(args)


def parse_min_max_nnodes(nnodes: str) -> tuple[int, int]:
    """The fewest and the most hosts of "4" or "1:4".

    Args:
        nnodes (str): The option.
    """
    numbers = nnodes.split(":")
    if len(numbers) > 2:
        raise RuntimeError(f'nnodes={nnodes} is not in "MIN:MAX" format')
    return int(numbers[0]), int(numbers[-1])


def determine_local_world_size(nproc_per_node: str) -> int:
    """How many processes of this host "4", "cpu", "gpu" or "auto" means.

    Args:
        nproc_per_node (str): The option.
    """
    if nproc_per_node.isdigit():
        return int(nproc_per_node)
    if nproc_per_node == "gpu" and not cuda.is_available():
        raise ValueError("Cuda is not available.")
    if nproc_per_node not in ("cpu", "gpu", "auto"):
        raise ValueError(f"Unsupported nproc_per_node value: {nproc_per_node}")
    cards = nproc_per_node != "cpu" and cuda.is_available()
    return cuda.device_count() if cards else core_count()


def _command(given: argparse.Namespace) -> list[str]:
    """The words of `rushlight launch`."""
    least, most = parse_min_max_nnodes(given.nnodes)
    if least != most:
        raise RushlightError("distributed.run: --nnodes of a range is not supported; give a number")
    if given.no_python or given.run_path:
        raise RushlightError("distributed.run: --no-python and --run-path are not supported")
    host, _, port = given.rdzv_endpoint.partition(":")
    words = ["-n", str(determine_local_world_size(given.nproc_per_node))]
    words += ["--restarts", str(given.max_restarts)]
    if most > 1:
        words += ["--nnodes", str(most), "--node-rank", str(given.node_rank)]
        words += ["--master-addr", host or given.master_addr]
        words += ["--master-port", port or str(given.master_port)]
    module = ["-m"] if given.module else []
    return [*words, *module, given.training_script, *given.training_script_args]


def run(args: argparse.Namespace) -> None:
    """Start the processes and wait for them; SystemExit where one fails.

    Args:
        args (Namespace): What `parse_args` gave.
    """
    command = [sys.executable, "-m", "rushlight", "launch", *_command(args)]
    status = subprocess.run(command, check=False).returncode
    if status:
        raise SystemExit(status)


def main(args: Sequence[str] | None = None) -> None:
    """torchrun.

    Args:
        args (list): The words; those of the command line without it.
    """
    run(parse_args(args))


if __name__ == "__main__":
    main()
