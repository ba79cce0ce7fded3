"""PyTorch's `torch.utils.tensorboard`: event files, by the package `tensorboard`."""

from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from rushlight.core.dtypes import bfloat16
from rushlight.core.errors import RushlightError
from rushlight.tensor import Tensor

try:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "torch.utils.tensorboard needs the package tensorboard: pip install tensorboard",
        name=error.name,
    ) from error

FileWriter = EventFileWriter


def _array(values: Any) -> Any:
    """The numbers as an array of the host."""
    if not isinstance(values, Tensor):
        return np.asarray(values)
    held: Any = values.detach().cpu()
    return (held.float() if held.dtype is bfloat16 else held).numpy()


class SummaryWriter:
    """Writes scalars, histograms, images and texts into a folder that TensorBoard shows."""

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        if log_dir is None:
            moment = time.strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{moment}_{socket.gethostname()}{comment}")
        self.log_dir = os.fspath(log_dir)
        self._options = (max_queue, flush_secs, filename_suffix)
        self._files: dict[str, Any] = {}
        self._file(self.log_dir)
        if purge_step is not None:
            self._event(self.log_dir, Event(file_version="brain.Event:2"), purge_step, None)

    def _file(self, folder: str) -> Any:
        if folder not in self._files:
            self._files[folder] = EventFileWriter(folder, *self._options)
        return self._files[folder]

    def _event(self, folder: str, event: Any, step: Any, moment: float | None) -> None:
        event.wall_time = time.time() if moment is None else moment
        if step is not None:
            event.step = int(step)
        self._file(folder).add_event(event)

    def _write(self, value: Any, step: Any, moment: float | None) -> None:
        self._event(self.log_dir, Event(summary=Summary(value=[value])), step, moment)

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: Any = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """A number at a step."""
        value = float(_array(scalar_value).squeeze())
        self._write(Summary.Value(tag=tag, simple_value=value), global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Several numbers at a step, each in a folder of its own."""
        for tag, scalar in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, f"{main_tag.replace('/', '_')}_{tag}")
            value = Summary.Value(tag=main_tag, simple_value=float(_array(scalar).squeeze()))
            self._event(folder, Event(summary=Summary(value=[value])), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: Any = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """The distribution of numbers."""
        flat = _array(values).astype(np.float64).ravel()
        if not flat.size:
            raise ValueError("add_histogram: there are no values")
        edges: Any = _EDGES if isinstance(bins, str) and bins == "tensorflow" else bins
        counts, limits = np.histogram(flat, bins=edges)
        held = np.flatnonzero(counts)
        first, last = int(held[0]), int(held[-1]) + 1
        histogram = HistogramProto(
            min=flat.min(),
            max=flat.max(),
            num=flat.size,
            sum=flat.sum(),
            sum_squares=(flat * flat).sum(),
            bucket_limit=[float(limits[first]), *map(float, limits[first + 1 : last + 1])],
            bucket=[0.0, *map(float, counts[first:last])],
        )
        self._write(Summary.Value(tag=tag, histo=histogram), global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """A picture: bytes, or numbers from 0 to 1."""
        self._write(
            Summary.Value(tag=tag, image=_picture(_array(img_tensor), dataformats)),
            global_step,
            walltime,
        )

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Several pictures side by side."""
        order = [dataformats.index(axis) for axis in "NCHW"]
        whole = np.concatenate(list(_array(img_tensor).transpose(order)), axis=-1)
        self.add_image(tag, whole, global_step, walltime)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: Any = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """A figure of matplotlib."""
        figure.canvas.draw()
        pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3]
        self.add_image(tag, pixels, global_step, walltime, "HWC")

    def add_text(
        self,
        tag: str,
        text_string: str,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """A text."""
        plugin = SummaryMetadata.PluginData(plugin_name="text")
        tensor = TensorProto(
            dtype="DT_STRING",
            string_val=[text_string.encode()],
            tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
        )
        self._write(
            Summary.Value(
                tag=f"{tag}/text_summary",
                metadata=SummaryMetadata(plugin_data=plugin),
                tensor=tensor,
            ),
            global_step,
            walltime,
        )

    def add_hparams(
        self, hparam_dict: Mapping[str, Any], metric_dict: Mapping[str, Any], **named: Any
    ) -> None:
        """Options as a text, and the numbers that they led to."""
        lines = ["| option | value |", "|---|---|"]
        lines += [f"| {name} | {value} |" for name, value in hparam_dict.items()]
        self.add_text("hparams", "\n".join(lines), named.get("global_step"))
        for tag, value in metric_dict.items():
            self.add_scalar(tag, value, named.get("global_step"))

    def add_graph(self, *args: Any, **named: Any) -> None:
        """Refuses: there is no TorchScript graph."""
        raise RushlightError("SummaryWriter.add_graph is not supported")

    add_embedding = add_video = add_audio = add_mesh = add_pr_curve = add_graph

    def flush(self) -> None:
        """Write what is queued."""
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        """Write what is queued and close the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_STEPS = 1e-12 * 1.1 ** np.arange(774)
_EDGES = np.concatenate([-_STEPS[::-1], [0.0], _STEPS])


def _picture(pixels: Any, layout: str) -> Any:
    """A PNG of an array."""
    from PIL import Image

    layout = layout.upper()
    if "C" in layout:
        pixels = pixels.transpose([layout.index(axis) for axis in "HWC"])
    else:
        pixels = pixels.transpose([layout.index(axis) for axis in "HW"])[..., None]
    if pixels.dtype != np.uint8:
        pixels = (pixels * 255).clip(0, 255).astype(np.uint8)
    if pixels.shape[-1] == 1:
        pixels = pixels.repeat(3, -1)
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG")
    height, width, channels = pixels.shape
    return Summary.Image(
        height=height, width=width, colorspace=channels, encoded_image_string=file.getvalue()
    )
