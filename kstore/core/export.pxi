# Export of a table through Arrow's C data interface: all its arrays belong to one object, which is freed when the last
# array is released.

cdef extern from *:
    """
    #ifndef ARROW_C_DATA_INTERFACE
    #define ARROW_C_DATA_INTERFACE
    struct ArrowArray {
        int64_t length;
        int64_t null_count;
        int64_t offset;
        int64_t n_buffers;
        int64_t n_children;
        const void** buffers;
        struct ArrowArray** children;
        struct ArrowArray* dictionary;
        void (*release)(struct ArrowArray*);
        void* private_data;
    };
    #endif

    /* How many threads are releasing, and whether the interpreter exits. */
    static int ks_releasing = 0;
    static int ks_is_exiting = 0;

    /* Requires: the GIL. private_data is a reference to the object that owns the arrays. */
    static void ks_drop_references(struct ArrowArray* array) {
        int64_t i;
        for (i = 0; i < array->n_children; i++)
            if (array->children[i]->release != NULL) {
                array->children[i]->release = NULL;
                ks_drop_references(array->children[i]);
            }
        Py_DECREF((PyObject*)array->private_data);
    }

    /* May run in any thread, with or without the GIL. A thread that waits for the GIL while the interpreter ends is
       ended there, inside of the caller's C++, which aborts the process. So nobody waits once the interpreter exits; the
       memory is then left to the operating system. */
    static void ks_release_exported(struct ArrowArray* array) {
        int may_wait;
        __atomic_add_fetch(&ks_releasing, 1, __ATOMIC_SEQ_CST);
        may_wait = !__atomic_load_n(&ks_is_exiting, __ATOMIC_SEQ_CST);
        array->release = NULL;
        if (may_wait) {
            PyGILState_STATE state = PyGILState_Ensure();
            ks_drop_references(array);
            PyGILState_Release(state);
        }
        __atomic_sub_fetch(&ks_releasing, 1, __ATOMIC_SEQ_CST);
    }

    /* Wait for the threads that are releasing; from now on nobody takes the GIL for it. Requires: not the GIL. */
    static void ks_end_releases(void) {
        __atomic_store_n(&ks_is_exiting, 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&ks_releasing, __ATOMIC_SEQ_CST))
            sched_yield();
    }

    /* For the child of a fork, in which no other thread goes on. */
    static void ks_forget_releases(void) {
        __atomic_store_n(&ks_releasing, 0, __ATOMIC_SEQ_CST);
    }
    """
    cdef struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        ArrowArray* dictionary
        void (*release)(ArrowArray*) noexcept
        void* private_data

    void ks_release_exported(ArrowArray* array) noexcept
    void ks_end_releases() noexcept nogil
    void ks_forget_releases() noexcept


def _end_releases():
    with nogil:
        ks_end_releases()


def _forget_releases():
    ks_forget_releases()


_at_exit(_end_releases)
_register_at_fork(after_in_child=_forget_releases)


# The number of arrays and buffers of a table, children included.
cdef struct ExportSize:
    int64_t arrays
    int64_t buffers


cdef int add_sizes(ExportSize* total, columns) except -1:
    for _, _, buffers, children in columns:
        total.arrays += 1
        total.buffers += len(buffers)
        add_sizes(total, children)
    return 0


# The memory of exported arrays: their structs, their pointer lists, and references to their buffers. Each array holds a
# reference to it.
@cython.final
cdef class _ExportedMemory:
    cdef ArrowArray* arrays
    cdef ArrowArray** children
    cdef const void** buffers
    cdef ExportSize used
    cdef list held

    cdef int reserve(self, columns) except -1:
        cdef ExportSize total = ExportSize(0, 1)
        add_sizes(&total, columns)
        self.held = []
        self.arrays = <ArrowArray*>calloc(<size_t>total.arrays + 1, sizeof(ArrowArray))
        self.children = <ArrowArray**>calloc(<size_t>total.arrays + 1, sizeof(ArrowArray*))
        self.buffers = <const void**>calloc(<size_t>total.buffers, sizeof(void*))
        if self.arrays == NULL or self.children == NULL or self.buffers == NULL:
            raise MemoryError(f"no memory for {total.arrays} arrays")
        return 0

    def __dealloc__(self):
        free(self.arrays)
        free(self.children)
        free(self.buffers)

    # Requires: reserve was called with these columns. If this raises, no array holds a reference yet, so none needs a
    # release.
    cdef int fill(self, ArrowArray* array, column) except -1:
        cdef int64_t size = 0
        cdef int64_t first, number
        length, null_count, buffers, children = column
        array.length = length
        array.null_count = null_count
        array.n_buffers = len(buffers)
        array.buffers = self.buffers + self.used.buffers
        self.used.buffers += array.n_buffers
        for number, buffer in enumerate(buffers):
            if type(buffer) is ColumnBuffer:
                self.held.append(buffer)
                array.buffers[number] = (<ColumnBuffer>buffer).block.data
            elif buffer is not None:
                array.buffers[number] = held_bytes(self.held, buffer, &size)
        array.n_children = len(children)
        array.children = self.children + self.used.arrays
        first = self.used.arrays
        self.used.arrays += array.n_children
        for number, child in enumerate(children):
            array.children[number] = self.arrays + first + number
            self.fill(array.children[number], child)
        return 0

    # Requires: fill succeeded. Makes each array hold a reference to this object until it is released.
    cdef int hand_over(self, ArrowArray* array) except -1:
        cdef int64_t number
        for number in range(array.n_children):
            self.hand_over(array.children[number])
        Py_INCREF(self)
        array.private_data = <void*>self
        array.release = ks_release_exported
        return 0


@cython.final
cdef class ExportedBatch:
    """A record batch as a struct ArrowArray at `address`, for a library to import (which moves the struct).

    Args: columns: (length, null_count, buffers, children) of each column. The buffers have the order and sizes of
        Arrow's layouts, with None for an absent one; the last buffer of a view column holds the int64 sizes of its data
        buffers. None of this is checked, as with pyarrow's Array.from_buffers. row_count: the length of the batch.
    Raises: MemoryError.
    Lifetime: all buffers are held until the whole batch is released; this object releases a batch that nobody imported.
        A release while the interpreter exits frees nothing.
    Threads: the release may run in any thread, and waits for the GIL.
    """

    cdef ArrowArray root

    def __cinit__(self, columns, *, int64_t row_count):
        cdef _ExportedMemory memory = _ExportedMemory()
        memory.reserve(columns)
        memory.fill(&self.root, (row_count, 0, (None,), columns))
        memory.hand_over(&self.root)

    def __dealloc__(self):
        if self.root.release != NULL:
            self.root.release(&self.root)

    @property
    def address(self):
        """The address of the struct, valid while this object lives."""
        return <uintptr_t>&self.root
