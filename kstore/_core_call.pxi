# The call of RecordBatchEncoder.append that comes once for each record, in front of Cython's parsing of its arguments.

cdef extern from "Python.h":
    ctypedef PyObject* (*vectorcallfunc)(PyObject* method, PyObject* const* args, size_t counted, PyObject* names) except NULL
    ctypedef struct CalledType "PyTypeObject":
        Py_ssize_t tp_vectorcall_offset
    CalledType* type_of "Py_TYPE"(PyObject* it) noexcept
    vectorcallfunc PyVectorcall_Function(object method) noexcept
    Py_ssize_t PyVectorcall_NARGS(size_t counted) noexcept
    Py_ssize_t name_count "PyTuple_GET_SIZE"(PyObject* names) noexcept
    PyObject* name_at "PyTuple_GET_ITEM"(PyObject* names, Py_ssize_t number) noexcept
    bint is_exact_int "PyLong_CheckExact"(PyObject* it) noexcept
    bint is_exact_bytes "PyBytes_CheckExact"(PyObject* it) noexcept
    char* first_byte "PyBytes_AS_STRING"(PyObject* it) noexcept
    Py_ssize_t byte_count "PyBytes_GET_SIZE"(PyObject* it) noexcept
    bint is_of_type "PyObject_TypeCheck"(PyObject* it, PyTypeObject* kind) noexcept

cdef str _TIMESTAMP_NAME = "timestamp_ms"
cdef str _KEY_NAME = "key"
cdef str _VALUE_NAME = "value"
cdef str _HEADERS_NAME = "headers"
cdef str _OFFSET_NAME = "offset"
cdef vectorcallfunc append_parsed = NULL


# Returns: whether the field is bytes or None. Lifetime: it points into the object.
cdef inline bint set_field(const uint8_t** data, int64_t* size, PyObject* it) noexcept:
    data[0] = NULL
    size[0] = -1
    if it == <PyObject*>None:
        return True
    if not is_exact_bytes(it):
        return False
    data[0] = <const uint8_t*>first_byte(it)
    size[0] = byte_count(it)
    return True


# Take the fields of a call by name. Returns: whether they are of the types that come by the million: int, bytes, None and
# an empty tuple of headers. Names in a call are interned, as those here; where they are not, they are parsed.
cdef inline bint set_named(RecordFields* r, PyObject** timestamp_ms, PyObject** offset, PyObject* const* given,
                           PyObject* names) noexcept:
    cdef Py_ssize_t number
    cdef PyObject* name
    cdef PyObject* it
    r.key = r.value = NULL
    r.key_size = r.value_size = -1
    r.header_count = r.headers_size = 0
    timestamp_ms[0] = NULL
    offset[0] = <PyObject*>None
    for number in range(name_count(names)):
        name, it = name_at(names, number), given[number]
        if name == <PyObject*>_TIMESTAMP_NAME:
            if not is_exact_int(it):
                return False
            timestamp_ms[0] = it
        elif name == <PyObject*>_KEY_NAME:
            if not set_field(&r.key, &r.key_size, it):
                return False
        elif name == <PyObject*>_VALUE_NAME:
            if not set_field(&r.value, &r.value_size, it):
                return False
        elif name == <PyObject*>_OFFSET_NAME:
            if not is_exact_int(it) and it != <PyObject*>None:
                return False
            offset[0] = it
        elif name != <PyObject*>_HEADERS_NAME or not is_empty_tuple(<object>it):
            return False
    return timestamp_ms[0] != NULL


# append() of a record's fields by name is done here, whatever else comes is parsed.
cdef PyObject* append_called(PyObject* method, PyObject* const* args, size_t counted, PyObject* names) except NULL:
    cdef RecordBatchEncoder encoder
    cdef RecordFields r
    cdef PyObject* timestamp_ms
    cdef PyObject* offset
    if names != NULL and PyVectorcall_NARGS(counted) == 1 and set_named(&r, &timestamp_ms, &offset, args + 1, names) \
            and is_of_type(args[0], <PyTypeObject*>RecordBatchEncoder):
        encoder = <RecordBatchEncoder>args[0]
        encoder.add(&r, None, encoder.next_or(<object>offset), <int64_t><object>timestamp_ms, False)
        Py_INCREF(encoder)
        return args[0]
    return append_parsed(method, args, counted, names)


# A callable's own pointer to what is called, which PEP 590 places in it.
cdef int enter_append() except -1:
    global append_parsed
    cdef object method = RecordBatchEncoder.append
    cdef Py_ssize_t place
    append_parsed = PyVectorcall_Function(method)
    if append_parsed != NULL:
        place = type_of(<PyObject*>method).tp_vectorcall_offset
        (<vectorcallfunc*>(<char*><PyObject*>method + place))[0] = append_called
    return 0


enter_append()
