# A value that is being read, and how what is read of it is stored in columns.

cdef enum:
    UNWANTED = -1               # the column of what is read, and not stored

# What reads the value: steps for Avro, nodes for JSON.
cdef struct ValueRun:
    ValueTable* table
    const uint8_t* start
    const uint8_t* at
    const uint8_t* end
    const uint8_t* readable_end
    const AvroStep* steps
    const int32_t* references
    const uint8_t* constants    # and the names of nodes
    int64_t empty_items
    const JsonNode* nodes
    const int32_t* ordered      # the numbers of the fields of each node, by name
    uint8_t* key                # room for a name without its escapes
    int64_t key_room
    int64_t repeated
    int32_t node                # that a value does not fit, -1 for none


cdef ValueFault put_bit(ValueRun* r, int32_t column, bint is_set) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + column
    cdef ValueFault fault
    if column == UNWANTED:
        return VALUE_SOUND
    fault = room_for_row(r.table, c)
    if fault != VALUE_SOUND:
        return fault
    if is_set:
        set_bit(c.data, c.rows)
    else:
        clear_bit(c.data, c.rows)
    end_row(c)
    return VALUE_SOUND


cdef ValueFault put_fixed(ValueRun* r, int32_t column, const void* p, int64_t width) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + column
    cdef ValueFault fault
    if column == UNWANTED:
        return VALUE_SOUND
    fault = room_for_row(r.table, c)
    if fault == VALUE_SOUND:
        memcpy(c.data + c.rows * width, p, <size_t>width)
        end_row(c)
    return fault


cdef inline ValueFault put_four(ValueRun* r, int32_t column, const void* p) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + column
    cdef ValueFault fault
    if column == UNWANTED:
        return VALUE_SOUND
    fault = room_for_row(r.table, c)
    if fault == VALUE_SOUND:
        memcpy(c.data + c.rows * 4, p, 4)
        end_row(c)
    return fault


cdef inline ValueFault put_eight(ValueRun* r, int32_t column, const void* p) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + column
    cdef ValueFault fault
    if column == UNWANTED:
        return VALUE_SOUND
    fault = room_for_row(r.table, c)
    if fault == VALUE_SOUND:
        memcpy(c.data + c.rows * 8, p, 8)
        end_row(c)
    return fault


cdef inline ValueFault put_long(ValueRun* r, int32_t column, int64_t value) noexcept nogil:
    return put_eight(r, column, &value)


cdef inline ValueFault put_double(ValueRun* r, int32_t column, double value) noexcept nogil:
    return put_eight(r, column, &value)


cdef inline ValueFault put_float(ValueRun* r, int32_t column, float value) noexcept nogil:
    return put_four(r, column, &value)


cdef inline ValueFault put_value_bytes(ValueRun* r, int32_t column, const uint8_t* p, int64_t size,
                                       const uint8_t* readable_end) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + column
    cdef ValueFault fault
    if column == UNWANTED:
        return VALUE_SOUND
    fault = room_for_row(r.table, c)
    if fault == VALUE_SOUND:
        fault = room_for_bytes(r.table, c, size)
    if fault == VALUE_SOUND:
        ks_copy(c.data + c.used, p, size, readable_end)
        c.used += size
        end_variable_row(c)
    return fault


cdef ValueFault put_value_text(ValueRun* r, int32_t column, const uint8_t* p, int64_t size) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + column
    cdef int64_t good
    cdef ValueFault fault
    if column == UNWANTED:
        return VALUE_SOUND
    if is_ascii(p, size, r.readable_end):
        return put_value_bytes(r, column, p, size, r.readable_end)
    good = valid_utf8(p, size)
    if good == size:
        return put_value_bytes(r, column, p, size, r.readable_end)
    fault = room_for_row(r.table, c)
    if fault == VALUE_SOUND:
        fault = room_for_bytes(r.table, c, UTF8_GROWTH * size)
    if fault == VALUE_SOUND:
        c.used += copy_as_text(c.data + c.used, p, size, good, r.readable_end)
        end_variable_row(c)
    return fault


cdef inline ValueFault end_struct(ValueRun* r, int32_t column) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + column
    cdef ValueFault fault
    if column == UNWANTED:
        return VALUE_SOUND
    fault = room_for_row(r.table, c)
    if fault == VALUE_SOUND:
        end_row(c)
    return fault


cdef ValueFault end_list(ValueRun* r, int32_t column) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + column
    cdef ValueFault fault
    if column == UNWANTED:
        return VALUE_SOUND
    fault = room_for_row(r.table, c)
    if fault == VALUE_SOUND:
        c.offsets[c.rows + 1] = <int32_t>r.table.columns[c.first_child].rows
        end_row(c)
    return fault
