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


# append(timestamp_ms=, key=, value=) of an int and bytes or None is done here, whatever else comes is parsed. Names in a
# call are interned, as those here; where they are not, they are parsed too.
cdef PyObject* append_called(PyObject* method, PyObject* const* args, size_t counted, PyObject* names) except NULL:
    cdef RecordBatchEncoder encoder
    cdef RecordFields r
    if names != NULL and PyVectorcall_NARGS(counted) == 1 and name_count(names) == 3 \
            and name_at(names, 0) == <PyObject*>_TIMESTAMP_NAME and name_at(names, 1) == <PyObject*>_KEY_NAME \
            and name_at(names, 2) == <PyObject*>_VALUE_NAME and is_exact_int(args[1]) \
            and set_field(&r.key, &r.key_size, args[2]) and set_field(&r.value, &r.value_size, args[3]) \
            and is_of_type(args[0], <PyTypeObject*>RecordBatchEncoder):
        r.header_count = r.headers_size = 0
        encoder = <RecordBatchEncoder>args[0]
        encoder.add(&r, None, encoder.h.base_offset + encoder.h.last_offset_delta + 1, <int64_t><object>args[1], False)
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
