"""PyTorch's `torch.distributed.launch`: the older name of `torch.distributed.run`."""

from __future__ import annotations

from collections.abc import Sequence

from rushlight.compat.distributed.run import parse_args as parse_args, run


def launch(args: object) -> None:
    """Start the processes.

    Args:
        args (Namespace): What `parse_args` gave.
    """
    run(args)  # type: ignore[arg-type]


def main(args: Sequence[str] | None = None) -> None:
    """Start the processes that the words name.

    Args:
        args (list): The words; those of the command line without it.
    """
    launch(parse_args(args))


if __name__ == "__main__":
    main()
