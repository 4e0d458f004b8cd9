# ValueDecoder: a column of values, of any number of schemas, decoded row by row into one set of columns.

# Whether the column of a step has the layout and the width that the step stores.
cdef bint fits_column(const AvroStep* s, const ValueTable* t) noexcept:
    cdef const ValueColumn* c
    cdef const ValueColumn* child
    if s.column == UNWANTED:
        return s.kind != STEP_MEMBER
    if s.kind == STEP_SKIP:
        return False
    if not 0 <= s.column < t.count:
        return False
    c = t.columns + s.column
    child = t.columns + c.first_child
    if s.kind == STEP_NULL or s.kind == STEP_UNION or s.kind == STEP_DEFAULT or s.kind == STEP_UNRESOLVED:
        return True
    if s.kind == STEP_BOOLEAN:
        return c.layout == LAYOUT_BIT
    if s.kind == STEP_BYTES or s.kind == STEP_STRING or s.kind == STEP_ENUM or s.kind == STEP_UUID:
        return c.layout == LAYOUT_VARIABLE
    if s.kind == STEP_FIXED:
        return c.layout == LAYOUT_VARIABLE if s.size == 0 else c.layout == LAYOUT_FIXED and c.width == s.size
    if s.kind == STEP_DECIMAL_BYTES or s.kind == STEP_DECIMAL_FIXED:
        return c.layout == LAYOUT_FIXED and (c.width == 16 or c.width == 32)
    if s.kind == STEP_DURATION:
        return c.layout == LAYOUT_STRUCT and c.child_count == 3 and child.layout == LAYOUT_FIXED and child.width == 8 \
            and child[1].layout == LAYOUT_FIXED and child[1].width == 8 \
            and child[2].layout == LAYOUT_FIXED and child[2].width == 8
    if s.kind == STEP_RECORD:
        return c.layout == LAYOUT_STRUCT
    if s.kind == STEP_MEMBER:
        return c.layout == LAYOUT_STRUCT and 0 <= s.size < c.child_count
    if s.kind == STEP_ARRAY:
        return c.layout == LAYOUT_LIST
    if s.kind == STEP_MAP:
        return c.layout == LAYOUT_LIST and child.layout == LAYOUT_STRUCT and child.child_count == 2 \
            and t.columns[child.first_child].layout == LAYOUT_VARIABLE
    if s.kind == STEP_INT or s.kind == STEP_INT_AS_FLOAT or s.kind == STEP_LONG_AS_FLOAT or s.kind == STEP_FLOAT \
            or s.kind == STEP_TIME_MILLIS:
        return c.layout == LAYOUT_FIXED and c.width == 4
    return c.layout == LAYOUT_FIXED and c.width == 8


@cython.final
cdef class AvroProgram:
    """What reads values of one writer's schema into the columns of a reader.

    Args: steps: for each step (kind, column, first, count, size, constant, constant_size), kind one of AVRO_STEPS,
        column -1 for a value that is skipped; references: the numbers that `first` and `count` are parts of; constants:
        the bytes that `constant` and the references of an enum point into; root: the number of the step of a value.
    Raises: ValueError for a step that does not fit the columns, or refers to what is not there; MemoryError.
    Threads: not thread-safe: it keeps the shapes of values.
    """

    cdef AvroStep* steps
    cdef int32_t* references
    cdef SkipShape* shapes
    cdef SkipGroup* groups
    cdef bytes constants
    cdef int32_t root

    def __cinit__(self, ValueColumns columns, steps, references, bytes constants, *, int32_t root):
        cdef AvroStep* s
        cdef int32_t number
        cdef int32_t step_count = len(steps)
        cdef int32_t reference_count = len(references)
        if columns is None or constants is None:
            raise TypeError("expected columns and constants, got None")
        self.constants = constants
        self.root = root
        self.steps = <AvroStep*>calloc(max(step_count, 1), sizeof(AvroStep))
        self.references = <int32_t*>calloc(max(reference_count, 1), sizeof(int32_t))
        if self.steps == NULL or self.references == NULL:
            raise MemoryError(f"no memory for {step_count} steps")
        for number, reference in enumerate(references):
            self.references[number] = reference
        for number, (kind, column, first, count, size, constant, constant_size) in enumerate(steps):
            s = self.steps + number
            s.kind, s.column, s.first, s.count = kind, column, first, count
            s.size, s.constant, s.constant_size = size, constant, constant_size
            if not 0 <= s.kind < STEPS or not fits_column(s, &columns.table) \
                    or not self.has_its_parts(s, step_count, reference_count):
                raise ValueError(f"step {number} is invalid: {steps[number]}")
        for number in range(step_count):
            if self.steps[number].kind == STEP_UNION and not self.has_plain_branches(self.steps + number):
                raise ValueError(f"step {number} is a union with a union as a branch: {steps[number]}")
        if not 0 <= root < step_count:
            raise ValueError(f"step {root} is not there")
        self.give_shapes(step_count)

    # Whether a skip has so many numbers and branches that comparing them together takes less than each by itself.
    cdef bint has_shape(self, const AvroStep* s) noexcept:
        cdef int32_t compared = 0
        cdef int32_t i
        for i in range(s.first, s.first + 2 * s.count, 2):
            compared += (self.references[i] & SKIP_NUMBER != 0) + (self.references[i] >= SKIP_IF_SECOND)
        return compared >= LEAST_COMPARED

    # Whether a step gets a shape, after others with so many groups.
    cdef bint gets_shape(self, const AvroStep* s, int32_t groups) noexcept:
        return s.kind == STEP_SKIP and s.count < MOST_GROUPS - groups and self.has_shape(s)

    # Gives skips their shapes, as far as there are groups for them.
    cdef int give_shapes(self, int32_t step_count) except -1:
        cdef AvroStep* s
        cdef int32_t number
        cdef int32_t groups = 0
        cdef int32_t count = 0
        for number in range(step_count):
            if self.gets_shape(self.steps + number, groups):
                groups += self.steps[number].count + 1
                count += 1
        self.shapes = <SkipShape*>calloc(max(count, 1), sizeof(SkipShape))
        self.groups = <SkipGroup*>calloc(max(groups, 1), sizeof(SkipGroup))
        if self.shapes == NULL or self.groups == NULL:
            raise MemoryError(f"no memory for the shapes of {count} skips")
        groups = count = 0
        for number in range(step_count):
            s = self.steps + number
            if self.gets_shape(s, groups):
                s.shape = self.shapes + count
                s.shape.groups, s.shape.room = self.groups + groups, s.count + 1
                drop_shape(s.shape)
                groups += s.count + 1
                count += 1
        return 0

    cdef bint has_plain_branches(self, const AvroStep* s) noexcept:
        cdef int32_t i
        for i in range(s.first, s.first + s.count):
            if self.steps[self.references[i]].kind == STEP_UNION:
                return False
        return True

    # Whether what a step refers to is there.
    cdef bint has_its_parts(self, const AvroStep* s, int32_t step_count, int32_t reference_count):
        cdef int64_t size = PyBytes_GET_SIZE(self.constants)
        cdef int64_t per_item = 2 if s.kind == STEP_ENUM or s.kind == STEP_SKIP else 1
        cdef int32_t i
        if s.size < 0 or not 0 <= s.constant <= size or not 0 <= s.constant_size <= size - s.constant:
            return False
        if not 0 <= s.first <= reference_count or s.count < 0 or per_item * s.count > reference_count - s.first:
            return False
        if s.kind == STEP_DECIMAL_BYTES or s.kind == STEP_DECIMAL_FIXED:
            return s.constant_size == 8 * LIMBS
        if s.kind == STEP_ARRAY or s.kind == STEP_MAP or s.kind == STEP_MEMBER or s.kind == STEP_DEFAULT:
            if s.count != 1:
                return False
        if s.kind == STEP_ENUM:
            for i in range(s.first, s.first + 2 * s.count, 2):
                if self.references[i] >= 0 and not 0 <= self.references[i + 1] <= size - self.references[i]:
                    return False
        elif s.kind == STEP_SKIP:
            for i in range(s.first, s.first + 2 * s.count, 2):
                if not 0 <= self.references[i] < 2 * SKIP_IF_FIRST or self.references[i + 1] < 0:
                    return False
        elif s.kind >= STEP_RECORD:
            for i in range(s.first, s.first + s.count):
                if not 0 <= self.references[i] < step_count:
                    return False
        return True

    def __dealloc__(self):
        free(self.steps)
        free(self.references)
        free(self.shapes)
        free(self.groups)


# A value that became a null row: its row in the table, why, where in the value it was seen, the id of its schema, and
# the node of JSON that it does not fit, -1 for none.
cdef struct FaultNote:
    int64_t row
    int64_t schema_id
    int64_t position
    ValueFault fault
    int32_t node

cdef struct KnownSchema:
    int64_t schema_id
    bint is_readable            # no: values of this id become null rows
    const AvroStep* steps
    const int32_t* references
    const uint8_t* constants
    int32_t root
    const JsonNode* nodes       # NULL for Avro
    const int32_t* ordered

cdef enum ValueStop:
    STOP_AT_END
    STOP_AT_SCHEMA          # the next value has a schema id that is not known
    STOP_AT_LIMIT           # the columns are full; the next value is not in them
    STOP_NO_MEMORY
    STOP_BAD_ARRAY

# A column of values to decode. offsets: of rows in the first buffer, or views: of rows in any of the buffers; the other
# one is NULL. ids: schema ids from elsewhere, -1 for a row whose value has its own; NULL for none.
cdef struct ValueInput:
    const uint8_t* validity
    const int32_t* offsets
    const View* views
    const Py_buffer* buffers
    int64_t buffer_count
    int64_t first               # of the rows, among the entries of the buffers
    int64_t rows
    const int64_t* ids
    ValueFraming framing
    bint allows_trailing


# Begins a value at a place in the array's data. Returns: False if it is not within the data.
cdef inline bint place_by_offsets(ValueRun* r, const ValueInput* v, int64_t at) noexcept nogil:
    cdef const uint8_t* data = <const uint8_t*>v.buffers[0].buf
    if not 0 <= v.offsets[at] <= v.offsets[at + 1] <= v.buffers[0].len:
        return False
    r.start = r.at = data + v.offsets[at]
    r.end = data + v.offsets[at + 1]
    r.readable_end = data + v.buffers[0].len
    return True


# As place_by_offsets, of a view, which may hold the value itself.
cdef inline bint place_by_view(ValueRun* r, const ValueInput* v, int64_t at) noexcept nogil:
    cdef const View* view = v.views + at
    cdef int64_t size = <int32_t>view.low
    cdef int64_t number = <int32_t>view.high
    cdef int64_t offset = <int32_t>(view.high >> 32)
    if size < 0:
        return False
    if size <= VIEW_INLINE_SIZE:
        r.start = <const uint8_t*>view + 4
        r.readable_end = <const uint8_t*>(v.views + v.first + v.rows)
    else:
        if not 0 <= number < v.buffer_count or not 0 <= offset <= v.buffers[number].len - size:
            return False
        r.start = <const uint8_t*>v.buffers[number].buf + offset
        r.readable_end = <const uint8_t*>v.buffers[number].buf + v.buffers[number].len
    r.at = r.start
    r.end = r.start + size
    return True


@cython.final
cdef class ValueDecoder:
    """Decodes values of any number of writers' schemas into the columns of one reader: Avro, or JSON.

    A value that cannot be decoded becomes a null row, and a note in `faults`.
    Args: columns: where rows go; framing: what each value begins with, one of VALUE_FRAMINGS; allows_trailing: whether
        bytes after a value are ignored, as Kafka's deserializers do.
    Threads: not thread-safe; decode releases the GIL.
    """

    cdef readonly ValueColumns columns
    cdef readonly int64_t schema_id     # of the value that was read last
    cdef dict programs
    cdef KnownSchema* known
    cdef int64_t known_count
    cdef int64_t known_capacity
    cdef KnownSchema* current           # that of schema_id, NULL if it has to be looked up
    cdef FaultNote* notes
    cdef int64_t note_count
    cdef int64_t note_capacity
    cdef ValueInput values
    cdef ValueRun run

    def __cinit__(self, ValueColumns columns, *, framing, bint allows_trailing):
        if columns is None:
            raise TypeError("expected columns, got None")
        self.columns = columns
        self.programs = {}
        self.values.framing = VALUE_FRAMINGS[framing]
        self.values.allows_trailing = allows_trailing
        self.schema_id = -1
        self.run.table = &columns.table

    def __dealloc__(self):
        free(self.known)
        free(self.notes)
        free(self.run.key)

    def add(self, int64_t schema_id, program):
        """Have values of a schema id read by a program, or become null rows if it is None.

        Args: schema_id: -1 for values without a frame; program: an AvroProgram or a JsonProgram.  Raises: MemoryError.
        """
        cdef int64_t number = self.place_of(schema_id)
        self.current = NULL
        if number == self.known_count or self.known[number].schema_id != schema_id:
            if self.known_count == self.known_capacity:
                self.grow_known()
            memmove(self.known + number + 1, self.known + number,
                    <size_t>(self.known_count - number) * sizeof(KnownSchema))
            self.known_count += 1
        self.programs[schema_id] = program
        self.known[number].schema_id = schema_id
        self.known[number].is_readable = False
        self.known[number].nodes = NULL
        if isinstance(program, JsonProgram):
            self.add_json(self.known + number, program)
        elif program is not None:
            self.add_avro(self.known + number, program)
        self.known[number].is_readable = program is not None

    def forget(self, *, bint keeps_readable):
        """Forget the schema ids that were added.  Args: keeps_readable: only those without a program."""
        cdef int64_t number
        cdef int64_t kept = 0
        self.current = NULL
        for number in range(self.known_count):
            if keeps_readable and self.known[number].is_readable:
                self.known[kept] = self.known[number]
                kept += 1
            else:
                del self.programs[self.known[number].schema_id]
        self.known_count = kept

    cdef void add_avro(self, KnownSchema* known, AvroProgram program) noexcept:
        known.steps = program.steps
        known.references = program.references
        known.constants = <const uint8_t*>PyBytes_AS_STRING(program.constants)
        known.root = program.root

    cdef int add_json(self, KnownSchema* known, JsonProgram program) except -1:
        if program.key_room > self.run.key_room:
            if regrow(<void**>&self.run.key, program.key_room) != VALUE_SOUND:
                raise MemoryError(f"no memory for a name of {program.key_room} bytes")
            self.run.key_room = program.key_room
        known.nodes = program.nodes
        known.ordered = program.ordered
        known.constants = <const uint8_t*>PyBytes_AS_STRING(program.names)
        return 0

    cdef int grow_known(self) except -1:
        cdef int64_t capacity = max(2 * self.known_capacity, 16)
        cdef void* longer = realloc(self.known, <size_t>capacity * sizeof(KnownSchema))
        if longer == NULL:
            raise MemoryError(f"no memory for {capacity} schemas")
        self.known = <KnownSchema*>longer
        self.known_capacity = capacity
        return 0

    # Returns: the number of the first known schema whose id is not below schema_id.
    cdef int64_t place_of(self, int64_t schema_id) noexcept nogil:
        cdef int64_t low = 0
        cdef int64_t high = self.known_count
        cdef int64_t middle
        while low < high:
            middle = (low + high) // 2
            if self.known[middle].schema_id < schema_id:
                low = middle + 1
            else:
                high = middle
        return low

    def decode(self, validity, index, data, *, int64_t first, int64_t row_count, int64_t row=0, ids=None):
        """Decode rows of an Arrow binary array from `row` on; return (the row that is next, one of VALUE_STOPS).

        Args: validity, index, data: the buffers of the array, None for an absent one: offsets and the bytes that they
            divide, or views and a list of the buffers that they point into; first: the array's offset in them; ids: an
            int64 schema id for each row, -1 where the value's frame has it, None for no such ids.
        Raises: ValueError for buffers that are too short, or offsets or views that are not within them; MemoryError.
        """
        cdef Py_buffer* held = NULL
        cdef int held_count = 0
        cdef int64_t next_row = row
        cdef ValueStop stop = STOP_AT_END
        cdef ValueInput* v = &self.values
        are_views = isinstance(data, list)
        buffers = (validity, index, ids, *(data if are_views else (data,)))
        if first < 0 or row_count < 0 or not 0 <= row <= row_count or row_count > INT32_MAX - first:
            raise ValueError(f"rows {row} to {row_count} from {first} on are no part of an array")
        held = <Py_buffer*>calloc(len(buffers), sizeof(Py_buffer))
        if held == NULL:
            raise MemoryError(f"no memory for {len(buffers)} buffers")
        try:
            for buffer in buffers:
                if buffer is None:
                    PyBuffer_FillInfo(&held[held_count], None, NULL, 0, True, PyBUF_SIMPLE)
                else:
                    PyObject_GetBuffer(buffer, &held[held_count], PyBUF_SIMPLE)
                held_count += 1
            least = 16 * (first + row_count) if are_views else 4 * (first + row_count + 1)
            if held[1].len < least or (validity is not None and 8 * held[0].len < first + row_count) \
                    or (ids is not None and held[2].len // 8 < row_count):
                raise ValueError(f"the buffers are too short for {row_count} rows from {first} on")
            v.validity = <const uint8_t*>held[0].buf if validity is not None else NULL
            v.offsets = <const int32_t*>held[1].buf if not are_views else NULL
            v.views = <const View*>held[1].buf if are_views else NULL
            v.ids = <const int64_t*>held[2].buf if ids is not None else NULL
            v.buffers, v.buffer_count = held + 3, held_count - 3
            v.first, v.rows = first, row_count
            self.columns.prepare()
            with nogil:
                stop = self.decode_rows(&next_row)
        finally:
            for number in range(held_count):
                PyBuffer_Release(&held[number])
            free(held)
        if stop == STOP_NO_MEMORY:
            raise MemoryError("no memory for decoded values")
        if stop == STOP_BAD_ARRAY:
            raise ValueError(f"row {next_row} is not within the data")
        return next_row, <int>stop

    def faults(self):
        """Return, for each null row that takes the place of a bad value, (row among those not taken, reason, position
        in the value in bytes, schema id, the number of the JSON node that it does not fit or -1), and forget them.
        """
        cdef list reasons = []
        cdef int64_t i
        for i in range(self.note_count):
            note = self.notes[i]
            reasons.append((note.row, VALUE_FAULTS[note.fault], note.position, note.schema_id, note.node))
        self.note_count = 0
        return reasons

    cdef ValueStop decode_rows(self, int64_t* next_row) noexcept nogil:
        cdef ValueTable* t = &self.columns.table
        cdef int64_t before
        cdef ValueFault fault = VALUE_SOUND
        cdef ValueStop stop
        while next_row[0] < self.values.rows:
            before = t.columns[0].rows
            stop = self.decode_row(next_row[0], &fault)
            if stop == STOP_AT_END and fault != VALUE_SOUND:
                cut_rows(t, 0, before)
                if fault == VALUE_TOO_LARGE and before == 0 and self.columns.is_prepared:
                    # What was taken for many rows leaves less for this one than it may have.
                    self.columns.clear()
                    continue
                stop = self.end_bad_row(fault)
            if stop != STOP_AT_END:
                return stop
            next_row[0] += 1
        return STOP_AT_END

    # Puts a null row in the place of a bad value. Requires: what was stored of it was removed.
    cdef ValueStop end_bad_row(self, ValueFault fault) noexcept nogil:
        cdef ValueTable* t = &self.columns.table
        cdef int64_t row = t.columns[0].rows
        if fault == VALUE_NO_MEMORY:
            return STOP_NO_MEMORY
        if fault == VALUE_TOO_LARGE:
            if row > 0:
                return STOP_AT_LIMIT
            self.columns.clear()
        if self.note_fault(row, fault) != VALUE_SOUND:
            return STOP_NO_MEMORY
        fault = append_null(t, 0)
        if fault == VALUE_TOO_LARGE and row == 0:
            # Of the room that was taken for rows that may come, some columns left others none.
            self.columns.clear()
            fault = append_null(t, 0)
        if fault == VALUE_SOUND:
            return STOP_AT_END
        cut_rows(t, 0, row)
        self.note_count -= 1
        return STOP_AT_LIMIT if fault == VALUE_TOO_LARGE and row > 0 else STOP_NO_MEMORY

    cdef ValueFault note_fault(self, int64_t row, ValueFault fault) noexcept nogil:
        cdef FaultNote* note
        if self.note_count == self.note_capacity:
            if regrow(<void**>&self.notes, max(2 * self.note_capacity, 16) * <int64_t>sizeof(FaultNote)) != VALUE_SOUND:
                return VALUE_NO_MEMORY
            self.note_capacity = max(2 * self.note_capacity, 16)
        note = self.notes + self.note_count
        note.row = row
        note.fault = fault
        note.schema_id = self.schema_id
        note.position = self.run.at - self.run.start
        note.node = self.run.node
        self.note_count += 1
        return VALUE_SOUND

    cdef inline ValueStop decode_row(self, int64_t row, ValueFault* fault) noexcept nogil:
        cdef ValueRun* r = &self.run
        cdef ValueInput* v = &self.values
        cdef const AvroStep* root
        cdef int64_t at = v.first + row
        fault[0] = VALUE_SOUND
        if v.validity != NULL and not is_bit_set(v.validity, at):
            fault[0] = append_null(r.table, 0)
            return STOP_AT_END
        if not (place_by_view(r, v, at) if v.views != NULL else place_by_offsets(r, v, at)):
            return STOP_BAD_ARRAY
        r.empty_items = 0
        r.node = -1
        if not self.take_schema(-1 if v.ids == NULL else v.ids[row]):
            fault[0] = VALUE_NOT_FRAMED
            return STOP_AT_END
        if self.current == NULL:
            return STOP_AT_SCHEMA
        if not self.current.is_readable:
            fault[0] = VALUE_NO_SCHEMA
            return STOP_AT_END
        if r.nodes != NULL:
            fault[0] = read_json(r)
            return STOP_AT_END
        root = r.steps + self.current.root
        fault[0] = read_record(r, root, 1) if root.kind == STEP_RECORD else read_step(r, self.current.root, 0)
        if fault[0] == VALUE_SOUND and r.at != r.end and not v.allows_trailing:
            fault[0] = VALUE_TRAILING_BYTES
        return STOP_AT_END

    cdef bint without_schema(self) noexcept nogil:
        self.schema_id = -1
        self.current = NULL
        return False

    # Finds the schema of a value, whose frame it moves past unless the id is from elsewhere. Returns: False if the
    # value has no frame.
    cdef inline bint take_schema(self, int64_t schema_id) noexcept nogil:
        cdef ValueRun* r = &self.run
        cdef int64_t size = r.end - r.at
        cdef int64_t number
        if schema_id < 0 and self.values.framing != FRAMING_NONE:
            if self.values.framing == FRAMING_CONFLUENT:
                if size < CONFLUENT_FRAME_SIZE or r.at[0] != 0:
                    return self.without_schema()
                schema_id = ks_get32(r.at + 1)
                r.at += CONFLUENT_FRAME_SIZE
            else:
                if size < APICURIO_FRAME_SIZE or r.at[0] != 0 or r.at[1] & NO_APICURIO_ID:
                    return self.without_schema()
                schema_id = <int64_t>ks_get64(r.at + 1)
                r.at += APICURIO_FRAME_SIZE
        if schema_id != self.schema_id or self.current == NULL:
            self.schema_id = schema_id
            number = self.place_of(schema_id)
            self.current = NULL
            if number < self.known_count and self.known[number].schema_id == schema_id:
                self.use_schema(self.known + number)
        return True

    cdef void use_schema(self, KnownSchema* known) noexcept nogil:
        self.current = known
        self.run.steps = known.steps
        self.run.references = known.references
        self.run.nodes = known.nodes
        self.run.ordered = known.ordered
        self.run.constants = known.constants


# Why a value cannot be decoded, by ValueFault.
VALUE_FAULTS = (
    "",
    "there is no memory for it",
    "it takes too much memory as columns",
    "it ends inside of a field",
    "a varint has more than 10 bytes",
    "an int does not fit 32 bits",
    "a size is negative",
    "a boolean is neither 0 nor 1",
    "the branch of a union is not in the schema",
    "the symbol of an enum is not in the schema",
    "a block of an array or map has more items than can follow",
    "a decimal has more digits than its precision",
    "a time is not within a day",
    "the reader's schema has no place for what was written",
    "values are nested more than 1000 deep",
    "bytes follow the value",
    "it does not begin with the magic byte and the id of a schema",
    "the schema of its id is not known",
    "what follows is no JSON",
    "it ends before its JSON does",
    "what follows is not UTF-8",
    "a field has another type",
    "a number is no integer",
    "a number does not fit",
    "an object repeats the names of fields more than 1024 times",
)
VALUE_FRAMINGS = {"none": <int>FRAMING_NONE, "confluent": <int>FRAMING_CONFLUENT, "apicurio": <int>FRAMING_APICURIO}
VALUE_STOPS = {
    "end": <int>STOP_AT_END,
    "schema": <int>STOP_AT_SCHEMA,
    "limit": <int>STOP_AT_LIMIT,
}
