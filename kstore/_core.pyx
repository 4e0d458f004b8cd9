# cython: language_level=3, binding=True, wraparound=False, auto_pickle=False
"""The compiled core: cimports, and the parts in kstore/core in dependency order.

Functions and methods for Python (`def`) take buffers, check their arguments, release the GIL where that pays, and turn
a status into an exception with its position. Leaf functions (`cdef ... noexcept nogil`) take pointers and sizes, use no
Python object and return a status. docs/format.md describes the bytes.
"""

cimport cython
from cpython.buffer cimport PyBUF_CONTIG_RO, PyBUF_FORMAT, PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_Clear, PyErr_ExceptionMatches, PyErr_SetFromErrno
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.number cimport PyIndex_Check
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from cpython.tuple cimport PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from cpython.weakref cimport PyWeakref_NewRef
from libc.errno cimport EAGAIN, EINTR, EIO, ENOENT, ENOSYS, EPERM, errno
from libc.stdint cimport INT16_MAX, INT32_MAX, INT64_MAX, INT64_MIN, UINT16_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from _thread import allocate_lock
from atexit import register as _at_exit
from os import register_at_fork as _register_at_fork
from os import strerror as _strerror
from sys import byteorder as _byteorder
from types import GenericAlias as _GenericAlias

from kstore.config import LogConfig
from kstore.errors import (
    BufferExhaustedError,
    CorruptRecordError,
    DecompressionError,
    InvalidRecordError,
    KStoreError,
    LogClosedError,
    MemoryLimitError,
    ProducerClosedError,
    StorageError,
    UnsupportedCompressionTypeError,
    UnsupportedMagicError,
    checked_index,
)
from kstore.types import OffsetAndTimestamp as _AnswerType
from kstore.types import TimestampType, datetime_of as _datetime_of, time_ms

# How the extension was compiled: "release", or for developers "fast" (-O1) and "debug" (sanitizers); see setup.py.
cdef extern from *:
    const char* KS_BUILD

BUILD = (<bytes>KS_BUILD).decode()

include "core/format.pxi"
include "core/crc.pxi"
include "core/batch.pxi"
include "core/walk.pxi"
include "core/memory.pxi"
include "core/record/record.pxi"
include "core/record/survey.pxi"
include "core/record/search.pxi"
include "core/codec.pxi"
include "core/columns.pxi"
include "core/record/lines.pxi"
include "core/record/encode.pxi"
include "core/record/builder.pxi"
include "core/log/file.pxi"
include "core/log/marks.pxi"
include "core/log/index.pxi"
include "core/log/lookup.pxi"
include "core/log/recover.pxi"
include "core/log/append.pxi"
include "core/log/read.pxi"
include "core/messages.pxi"
include "core/plain.pxi"
include "core/decode.pxi"
include "core/log/appender.pxi"
include "core/log/keys.pxi"
include "core/log/compact.pxi"
include "core/log/watch.pxi"
include "core/producer/pool.pxi"
include "core/producer/batch.pxi"
include "core/producer/stamp.pxi"
include "core/record/pack.pxi"
include "core/export.pxi"
include "core/values/columns.pxi"
include "core/values/run.pxi"
include "core/values/skip.pxi"
include "core/values/avro.pxi"
include "core/values/numbers.pxi"
include "core/values/pass.pxi"
include "core/values/json.pxi"
include "core/values/decoder.pxi"
include "core/producer/accumulate.pxi"
include "core/producer/send.pxi"
include "core/log/leader.pxi"
include "core/producer/direct.pxi"
include "core/producer/loop.pxi"
