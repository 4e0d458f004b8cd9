"""Arrow: kstore.scan, which decodes logs into Arrow record batches without a copy, and packing of Arrow data.

Column names and types are those of Spark's Kafka source, plus columns for the fields of batch headers; see schema().
Importing this package requires pyarrow.
"""

from typing import TYPE_CHECKING

from kstore._lazy import lazy_names

try:
    import pyarrow  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "pyarrow":
        raise
    raise ModuleNotFoundError(
        "this part of kstore needs the package pyarrow: pip install 'kstore[arrow]'", name=error.name
    ) from error

from kstore.arrow.columns import DEFAULT_COLUMNS, Binary, schema
from kstore.arrow.decoding import DEFAULT_BATCH_BYTES, PartDecoder, record_batches
from kstore.arrow.log_batches import decoder_of_log
from kstore.arrow.packing import pack_record_batch, record_columns, to_record_batches
from kstore.arrow.scans import Scan, scan
from kstore.log.files.selection import Offsets
from kstore.log.plan import THREAD_RANGE_BYTES
from kstore.types import Time

if TYPE_CHECKING:
    from kstore.values.formats import ValueFormat
    from kstore.values.providers import SchemaSource
    from kstore.values.registry import SchemaRegistry
    from kstore.values.typed import ValueMode

__all__ = [
    "DEFAULT_BATCH_BYTES",
    "DEFAULT_COLUMNS",
    "THREAD_RANGE_BYTES",
    "Binary",
    "Offsets",
    "PartDecoder",
    "Scan",
    "SchemaRegistry",
    "SchemaSource",
    "Time",
    "ValueFormat",
    "ValueMode",
    "decoder_of_log",
    "pack_record_batch",
    "record_batches",
    "record_columns",
    "scan",
    "schema",
    "to_record_batches",
]

# What a scan of bytes does not need.
__getattr__, __dir__, _ = lazy_names(
    __name__,
    {
        "kstore.values.formats": ("ValueFormat",),
        "kstore.values.providers": ("SchemaSource",),
        "kstore.values.registry": ("SchemaRegistry",),
        "kstore.values.typed": ("ValueMode",),
    },
)
