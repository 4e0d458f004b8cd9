# A table handed over by Arrow's C data interface: one struct for all of it, whose release gives everything back.

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

    /* From any thread, with or without the GIL; private_data is a reference to the memory of the arrays. Where the
       interpreter is ending there is none to take: what is left goes with the process. */
    static void ks_release_exported(struct ArrowArray* array) {
        PyGILState_STATE state;
        int64_t i;
        array->release = NULL;
        if (!Py_IsInitialized())
            return;
        state = PyGILState_Ensure();
        for (i = 0; i < array->n_children; i++)
            if (array->children[i]->release != NULL)
                array->children[i]->release(array->children[i]);
        Py_DECREF((PyObject*)array->private_data);
        PyGILState_Release(state);
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


# What the columns of a table and their children take together.
cdef struct ExportSize:
    int64_t arrays
    int64_t buffers


cdef int add_sizes(ExportSize* total, columns) except -1:
    for _, _, buffers, children in columns:
        total.arrays += 1
        total.buffers += len(buffers)
        add_sizes(total, children)
    return 0


# The memory of exported arrays, each of which keeps it: their structs, their lists of pointers, the buffers held.
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

    # Requires: what reserve counted. No array is released by an error here: those made so far keep nothing.
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
            if buffer is not None:
                array.buffers[number] = held_bytes(self.held, buffer, &size)
        array.n_children = len(children)
        array.children = self.children + self.used.arrays
        first = self.used.arrays
        self.used.arrays += array.n_children
        for number, child in enumerate(children):
            array.children[number] = self.arrays + first + number
            self.fill(array.children[number], child)
        return 0

    # Requires: fill went well. Makes an array keep this memory until it is released.
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
    """The struct ArrowArray of a record batch, at `address`, to be moved away by the library that imports it.

    columns: (length, null_count, buffers, children) of each, the buffers in the order and of the size that Arrow's
    layouts ask for, None for one that is absent; a view column's last buffer is the int64 sizes of its data buffers.
    Nothing of that is checked, as by pyarrow's Array.from_buffers.
    Lifetime: all buffers are held until all of the batch is released; here, if nobody imported it.
    Threads: the release may come from any.
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
        """Where the struct is; valid as long as this object."""
        return <uintptr_t>&self.root
