# Batches that are sent together: what is done to each of them on its way out of the queues and to its end, in one call.


# Whether nothing has to be asked of the head of a queue but whether it is its turn: it was never sent and is not over.
cdef inline bint is_fresh(BatchAppender batch) noexcept:
    cdef RecordBatchEncoder builder = batch._builder
    return batch.attempts == 0 and batch.final_state is None and builder.buffer is not None and not builder.is_handed_out \
        and builder.h.base_sequence == -1 and builder.h.attributes & CODEC_MASK == 0


def push_batches(PartitionQueue queue not None, list batches not None, Py_ssize_t count, dict incomplete not None):
    """Take so many first batches out of a list, and put them behind all others of a queue that is held, and among those that
    are not done."""
    cdef BatchAppender batch
    cdef list checked = [<BatchAppender?>batch for batch in batches[:count]]
    for batch in checked:
        incomplete[batch] = None
    queue.batches += checked
    del batches[:count]
    if checked:
        queue.active[queue] = None


def give_up(PoolMemory pool not None, list held not None, list batches not None):
    """Give the buffers of one list and the batches of another one back, and leave both empty."""
    pool.deallocate_all(held)
    while batches:
        (<BatchAppender?>batches.pop()).deallocate_once()


# The rounds in which queues take turns.
cdef struct Rounds:
    int64_t lingered_since_ms     # a batch that waits since then, or longer, may go even if it is not full
    int64_t room


# Returns: whether the head behind `passed` others is to go. is_odd: a closer look is needed, or it finds no room.
cdef bint has_turn(PartitionQueue queue, Py_ssize_t passed, Rounds* rounds, bint* is_odd) noexcept:
    cdef Py_ssize_t left = len(queue.batches) - passed
    cdef BatchAppender head
    if left <= 0:
        return False
    head = <BatchAppender>queue.batches[passed]
    if left == 1 and not head.looks_full() and head.last_attempt_ms > rounds.lingered_since_ms:
        return False
    if not is_fresh(head) or head._builder.estimate() > rounds.room:
        is_odd[0] = True
        return False
    rounds.room -= head._builder.estimate()
    return True


def rounds_of(list queues not None, *, Py_ssize_t most, int64_t room, int64_t lingered_since_ms):
    """Return how many batches each queue gives if they take turns, as many whole rounds as need no closer look.

    A queue of which no batch is ready, behind those it gave, takes no more turns. A batch that was sent before, is over or
    compressed, or has no room, needs a closer look.
    Args: room: bytes; lingered_since_ms: a batch that is neither full nor followed must wait since then.
    """
    cdef Rounds rounds = Rounds(lingered_since_ms, room)
    cdef PartitionQueue queue
    cdef bint is_odd = False
    cdef Py_ssize_t place, round_number
    cdef list given = [0] * len(queues), before, in_turn = list(range(len(queues))), still
    for round_number in range(most):
        before, still = list(given), []
        for place in in_turn:
            queue = queues[place]
            if has_turn(queue, round_number, &rounds, &is_odd):
                given[place] = round_number + 1
                still.append(place)
            elif is_odd:
                return before
        if not still:
            break
        in_turn = still
    return given


def take_batches(PartitionQueue queue not None, Py_ssize_t most, leader_epoch, *, int64_t room):
    """Take at most so many first batches, as rounds_of() counts them, out of a queue that is held; they are in flight then.

    Args: room: bytes; since they were counted records may have come to the last one.
    """
    cdef Py_ssize_t count = 0
    cdef BatchAppender batch
    cdef list taken
    for batch in queue.batches[:most]:
        if not is_fresh(batch) or batch._builder.estimate() > room:
            break
        room -= batch._builder.estimate()
        count += 1
    taken = queue.batches[:count]
    del queue.batches[:count]
    for batch in taken:
        batch.is_inflight = True
        if leader_epoch is not None:
            batch.maybe_update_leader_epoch(leader_epoch)
    if count and not queue.batches:
        queue.active.pop(queue, None)
    return taken


def number_batches(list batches not None, *, producer_id, producer_epoch, int32_t base_sequence, bint is_transactional):
    """Give batches that are not closed the sequences from one on, and return the one behind them.

    Raises: ValueError, and none has got any.
    """
    cdef BatchAppender batch
    cdef int64_t sequence = base_sequence
    for batch in batches:
        if batch._builder.is_handed_out:
            raise ValueError("a batch is closed: its producer state can only be rewritten by reopening it")
    for batch in batches:
        batch.set_producer_state(producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence,
                                 is_transactional=is_transactional)
        sequence = (sequence + batch._builder.h.record_count) & INT32_MAX
    return sequence


def close_batches(list batches not None, int64_t now_ms):
    """Close uncompressed batches as they are drained; return the bytes of those that are not over.

    Raises: ValueError as BatchAppender.seal().
    """
    cdef BatchAppender batch
    cdef int64_t size = 0
    for batch in batches:
        if not batch._builder.is_handed_out:
            batch.seal()
        if batch.final_state is None:
            size += batch._builder.used
            batch.drained(now_ms)
    return size


def begin_sends(list batches not None, int64_t created_before_ms):
    """Say that somebody begins to read the buffers of those batches that are younger; return these and the older ones.

    Raises: ValueError as BatchAppender.begin_send(), and then none was begun.
    """
    cdef BatchAppender batch
    cdef list young = [], old = []
    for batch in batches:
        (young if batch.created_ms > created_before_ms else old).append(batch)
    for batch in young:
        if batch.is_deallocated:
            raise ValueError("the batch was deallocated: it can't be sent")
    for batch in young:
        batch.send_count += 1
    return young, old


def end_sends(list batches not None):
    """Say that those who read the buffers are done."""
    cdef BatchAppender batch
    for batch in batches:
        batch.end_send()


def records_of_batches(list batches not None):
    """Return what records() of each gives."""
    cdef BatchAppender batch
    cdef list records = []
    for batch in batches:
        built = batch._builder._built if batch._builder.is_handed_out else None
        records.append((<object>batch).records() if built is None else built)
    return records


def sums_of_request(list batches not None):
    """Return (sum, maximum) of sizes, of the largest records' sizes, of times in queue and of compression ratios, and the
    number of records."""
    cdef BatchAppender batch
    cdef int64_t sums[3]
    cdef int64_t largest[3]
    cdef int64_t values[3]
    cdef int64_t records = 0
    cdef double ratio, ratios = 0, largest_ratio = 0
    cdef int i
    for i in range(3):
        sums[i] = largest[i] = 0
    for batch in batches:
        values[0] = batch._builder.estimated_size_in_bytes
        values[1] = batch.max_record_size
        values[2] = batch.drained_ms - batch.created_ms
        for i in range(3):
            sums[i] += values[i]
            largest[i] = max(largest[i], values[i])
        ratio = batch._builder.compression_ratio
        ratios += ratio
        largest_ratio = max(largest_ratio, ratio)
        records += batch._builder.h.record_count
    return [(sums[i], largest[i]) for i in range(3)] + [(ratios, largest_ratio)], records


# Whether it is a plain int from -1 to `most`.
cdef inline bint is_offset_or_none(object number, int64_t most) noexcept:
    cdef int overflow = 0
    cdef int64_t value
    if type(number) is not int:
        return False
    value = PyLong_AsLongLongAndOverflow(number, &overflow)
    return overflow == 0 and -1 <= value <= most


# Whether it is a response of that class, a tuple of offset, append time, error and more, of which nothing has to be asked.
cdef inline bint is_plain_success(object response, object response_type, int64_t record_count) noexcept:
    if type(response) is not response_type or not isinstance(response, tuple) or len(<tuple>response) < 3:
        return False
    return ((<tuple>response)[2] is None and is_offset_or_none((<tuple>response)[0], INT64_MAX - record_count)
            and is_offset_or_none((<tuple>response)[1], INT64_MAX))


def answered_from(list batches not None, list responses not None, Py_ssize_t start, response_type):
    """Return the place behind the batches from one on that are of one partition, not over, and succeeded at the first try.

    Args: response_type: of which a response has to be, with numbers that can be true.
    """
    cdef Py_ssize_t end = start
    cdef BatchAppender batch
    cdef object topic_partition
    if len(responses) != len(batches) or start < 0:
        raise ValueError(f"expected as many responses as batches, {len(batches)}, got {len(responses)}, from {start} on")
    if start < len(batches):
        topic_partition = (<BatchAppender?>batches[start]).topic_partition
        while end < len(batches):
            batch = <BatchAppender?>batches[end]
            if batch.attempts or batch.final_state is not None or batch.topic_partition is not topic_partition:
                break
            if not is_plain_success(responses[end], response_type, batch._builder.h.record_count):
                break
            end += 1
    return end


# Whether no code of others has to be called when the batch ends.
cdef inline bint ends_in_silence(BatchAppender batch) except -1:
    if batch.final_state is not None or batch.thunks or not isinstance(batch.result, BatchResult):
        return False
    return (<BatchResult>batch.result).is_silent()


def complete_batches(list batches not None, list responses not None, *, Py_ssize_t start, Py_ssize_t end, state,
                     dict incomplete not None, complete):
    """End batches as sent and give their memory back; those that somebody wants to be told of by complete(batch, response).

    Args: state: their final state.
    Raises: what complete() raises, with the ones behind not ended.
    """
    cdef BatchAppender batch
    cdef int64_t base_offset, log_append_time_ms
    cdef Py_ssize_t i
    for i in range(start, end):
        batch = batches[i]
        response = responses[i]
        base_offset, log_append_time_ms = response.base_offset, response.log_append_time_ms
        if not ends_in_silence(batch):
            complete(batch, response)
            continue
        # No code of others ran since it was asked.
        batch.final_state = state
        (<BatchResult>batch.result).succeed(base_offset, log_append_time_ms)
        incomplete.pop(batch, None)
        batch.deallocate_once()
