# Aborted transactions: which batches a read_committed reader leaves out.

# Data of producer_id with first_offset <= base offset <= last_offset (the abort marker's) was rolled back.
cdef struct Aborted:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset


# Requires: sorted by producer id, then first offset; the transactions of one producer do not overlap.
cdef bint is_aborted(const Aborted* sorted_list, int64_t count, const Header* h) noexcept nogil:
    cdef int64_t low = 0
    cdef int64_t high = count
    cdef int64_t middle
    cdef const Aborted* one
    if not h.attributes & TRANSACTIONAL_MASK:
        return False
    while low < high:
        middle = low + (high - low) // 2
        one = sorted_list + middle
        if one.producer_id < h.producer_id or (one.producer_id == h.producer_id and one.first_offset <= h.base_offset):
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return False
    one = sorted_list + low - 1
    return one.producer_id == h.producer_id and h.base_offset <= one.last_offset


cdef ColumnBuffer aborted_list(transactions):
    cdef list ordered = sorted(transactions)
    cdef ColumnBuffer buffer = ColumnBuffer(len(ordered) * sizeof(Aborted))
    cdef Aborted* list_ = <Aborted*>buffer.block.data
    for i, (producer_id, first_offset, last_offset) in enumerate(ordered):
        list_[<Py_ssize_t>i].producer_id = producer_id
        list_[<Py_ssize_t>i].first_offset = first_offset
        list_[<Py_ssize_t>i].last_offset = last_offset
    return buffer
