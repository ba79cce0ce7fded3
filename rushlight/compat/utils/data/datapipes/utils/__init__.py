"""What pipes share."""

from rushlight.compat.utils.data.datapipes.utils import common as common
