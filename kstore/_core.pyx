# cython: language_level=3, embedsignature=True, binding=True, wraparound=False
"""Umbrella of the compiled core: directives, cimports, and the parts in dependency order.

Layer 2. Boundary functions (`def`) take memoryviews, check, release the GIL and turn a status into an
exception with its position. Leaves (`cdef ... noexcept nogil`) take pointers and lengths, touch no
Python object and return a status. The bytes are described in docs/format.md.
"""

cimport cython
from cpython.buffer cimport PyBUF_CONTIG_RO, PyBUF_FORMAT, PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.number cimport PyIndex_Check, PyNumber_Index
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from cpython.tuple cimport PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from cpython.weakref cimport PyWeakref_NewRef
from libc.errno cimport EIO
from libc.stdint cimport INT16_MAX, INT32_MAX, INT64_MAX, INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from _thread import allocate_lock
from sys import byteorder as _byteorder

from kstore.config import LogConfig
from kstore.errors import (
    BufferExhaustedError,
    CorruptRecordError,
    DecompressionError,
    InvalidRecordError,
    LogClosedError,
    MemoryLimitError,
    ProducerClosedError,
    StorageError,
    UnsupportedCompressionTypeError,
    UnsupportedMagicError,
)
from kstore.types import OffsetAndTimestamp as _AnswerType
from kstore.types import TimestampType

include "_core_format.pxi"
include "_core_status.pxi"
include "_core_bytes.pxi"
include "_core_crc.pxi"
include "_core_murmur.pxi"
include "_core_batch.pxi"
include "_core_legacy.pxi"
include "_core_scan.pxi"
include "_core_record.pxi"
include "_core_survey.pxi"
include "_core_json.pxi"
include "_core_index.pxi"
include "_core_buffer.pxi"
include "_core_pool.pxi"
include "_core_run.pxi"
include "_core_entries.pxi"
include "_core_file.pxi"
include "_core_lookup.pxi"
include "_core_segment.pxi"
include "_core_recover.pxi"
include "_core_block.pxi"
include "_core_codec.pxi"
include "_core_encode.pxi"
include "_core_builder.pxi"
include "_core_call.pxi"
include "_core_future.pxi"
include "_core_producer.pxi"
include "_core_rewrite.pxi"
include "_core_append.pxi"
include "_core_assign.pxi"
include "_core_sequence.pxi"
include "_core_appender.pxi"
include "_core_aborted.pxi"
include "_core_columns.pxi"
include "_core_table.pxi"
include "_core_pack.pxi"
include "_core_spread.pxi"
include "_core_bulk.pxi"
include "_core_queue.pxi"
include "_core_accumulate.pxi"
include "_core_request.pxi"
include "_core_send.pxi"
include "_core_export.pxi"
include "_core_plain.pxi"
include "_core_messages.pxi"
include "_core_content.pxi"
include "_core_decoder.pxi"
