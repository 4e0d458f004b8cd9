"""Arrow: kstore.scan, which decodes logs into Arrow record batches without a copy, and packing of Arrow data.

Column names and types are those of Spark's Kafka source, plus columns for the fields of batch headers; see schema().
Importing this package requires pyarrow. A name is imported when it is first used: what packs needs nothing that scans.
"""

from __future__ import annotations

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

if TYPE_CHECKING:
    from kstore.arrow.columns import DEFAULT_COLUMNS as DEFAULT_COLUMNS
    from kstore.arrow.columns import Binary as Binary
    from kstore.arrow.columns import schema as schema
    from kstore.arrow.decoding import DEFAULT_BATCH_BYTES as DEFAULT_BATCH_BYTES
    from kstore.arrow.decoding import PartDecoder as PartDecoder
    from kstore.arrow.decoding import record_batches as record_batches
    from kstore.arrow.log_batches import decoder_of_log as decoder_of_log
    from kstore.arrow.packing import pack_record_batch as pack_record_batch
    from kstore.arrow.packing import record_columns as record_columns
    from kstore.arrow.packing import to_record_batches as to_record_batches
    from kstore.arrow.scans import Scan as Scan
    from kstore.arrow.scans import scan as scan
    from kstore.log.files.selection import Offsets as Offsets
    from kstore.log.plan import THREAD_RANGE_BYTES as THREAD_RANGE_BYTES
    from kstore.types import Time as Time
    from kstore.values.formats import ValueFormat as ValueFormat
    from kstore.values.providers import SchemaSource as SchemaSource
    from kstore.values.registry import SchemaRegistry as SchemaRegistry
    from kstore.values.typed import ValueMode as ValueMode

_MODULES = {
    "kstore.arrow.columns": ("DEFAULT_COLUMNS", "Binary", "schema"),
    "kstore.arrow.decoding": ("DEFAULT_BATCH_BYTES", "PartDecoder", "record_batches"),
    "kstore.arrow.log_batches": ("decoder_of_log",),
    "kstore.arrow.packing": ("pack_record_batch", "record_columns", "to_record_batches"),
    "kstore.arrow.scans": ("Scan", "scan"),
    "kstore.log.files.selection": ("Offsets",),
    "kstore.log.plan": ("THREAD_RANGE_BYTES",),
    "kstore.types": ("Time",),
    "kstore.values.formats": ("ValueFormat",),
    "kstore.values.providers": ("SchemaSource",),
    "kstore.values.registry": ("SchemaRegistry",),
    "kstore.values.typed": ("ValueMode",),
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _MODULES)
