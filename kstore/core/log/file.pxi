# Positioned reads and writes of an open file, by functions that env/files.py passes in, and appends to a file of records,
# without Python frames of their own; the header walk that reads from the page cache; read-only maps; the part of a file
# that a fetch lends; and the status of a file with its birth time.

cdef extern from *:
    """
    #include <errno.h>

    /* struct statx of Linux (statx(2), since 4.11), declared here since an older libc knows neither it nor the call. */
    typedef struct { int64_t seconds; uint32_t nanoseconds; int32_t reserved; } ks_time;
    typedef struct {
        uint32_t mask, block_size;
        uint64_t attributes;
        uint32_t links, uid, gid;
        uint16_t mode, pad;
        uint64_t inode, size, blocks, attributes_mask;
        ks_time accessed, born, changed, modified;
        uint32_t rdev_major, rdev_minor, device_major, device_minor;
        uint64_t spare[14];
    } ks_statx;

    #include <fcntl.h>
    #include <sys/stat.h>
    #include <unistd.h>
    #ifdef __linux__
    #include <sys/syscall.h>
    #include <sys/sysmacros.h>
    #ifdef SYS_statx
    #define KS_STATX SYS_statx
    #elif defined(__x86_64__)
    #define KS_STATX 332
    #elif defined(__aarch64__)
    #define KS_STATX 291
    #endif
    #endif

    enum { KS_BASIC_STATS = 0x7ff, KS_BORN = 0x800 };

    /* The status of a path, or of the descriptor `fd` if there is none. Returns: 0 or an errno; ENOSYS where the system
       has no such call. */
    static int ks_file_status(int fd, const char* path, int follows, ks_statx* to, uint64_t* device) {
    #ifdef KS_STATX
        int flags = path == NULL ? AT_EMPTY_PATH : follows ? 0 : AT_SYMLINK_NOFOLLOW;
        if (syscall(KS_STATX, path == NULL ? fd : AT_FDCWD, path == NULL ? "" : path, flags,
                    KS_BASIC_STATS | KS_BORN, to) != 0)
            return errno;
        *device = (uint64_t)makedev(to->device_major, to->device_minor);
        return 0;
    #else
        (void)fd, (void)path, (void)follows, (void)to, (void)device;
        return ENOSYS;
    #endif
    }

    /* Opens a regular file of at most `most` bytes, whose size it sets.  Returns: its descriptor, or -errno. */
    static int ks_open_small(const char* path, int64_t most, int64_t* size) {
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), failed;
        ks_statx status;
        uint64_t device;
        if (fd < 0)
            return -errno;
        failed = ks_file_status(fd, NULL, 0, &status, &device);
        if (!failed && (!S_ISREG(status.mode) || status.size > (uint64_t)most))
            failed = EFBIG;
        if (failed) {
            (void)close(fd);
            return -failed;
        }
        *size = (int64_t)status.size;
        return fd;
    }

    /* Reads the first `size` bytes of a file, and closes it.  Returns: how many bytes there are, or -errno. */
    static int64_t ks_read_and_close(int fd, char* to, int64_t size) {
        int failed = 0;
        int64_t done = 0;
        while (!failed && done < size) {
            ssize_t count = pread(fd, to + done, (size_t)(size - done), (off_t)done);
            if (count < 0)
                failed = errno;
            if (count <= 0)
                break;
            done += count;
        }
        if (close(fd) != 0 && !failed)
            failed = errno;
        return failed ? -(int64_t)failed : done;
    }

    /* Returns: the size in bytes of a regular file, -1 for anything else, -2 where that cannot be asked. */
    static int64_t ks_regular_size(const char* path) {
        ks_statx status;
        uint64_t device;
        int failed = ks_file_status(-1, path, 0, &status, &device);
        if (failed)
            return failed == ENOSYS || failed == EPERM ? -2 : -1;
        return S_ISREG(status.mode) ? (int64_t)status.size : -1;
    }

    /* cachestat(2) of Linux, since 6.5; its number is that of all architectures but alpha. Returns: how many of the pages
       that hold bytes of [position, position + size) are in memory, of which `pages` is set to all; or -1, and errno. */
    static int64_t ks_cached_pages(int fd, uint64_t position, uint64_t size, uint64_t* pages) {
    #if defined(__linux__) && !defined(__alpha__)
        struct { uint64_t position, size; } range = {position, size};
        struct { uint64_t cached, dirty, in_writeback, evicted, recently_evicted; } found = {0, 0, 0, 0, 0};
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
        *pages = (position + size - 1) / page - position / page + 1;
        return syscall(451, fd, &range, &found, 0) != 0 ? -1 : (int64_t)found.cached;
    #else
        (void)fd, (void)position, (void)size, (void)pages;
        errno = ENOSYS;
        return -1;
    #endif
    }
    """
    ctypedef struct ks_time:
        int64_t seconds
        uint32_t nanoseconds
    ctypedef struct ks_statx:
        uint32_t mask
        uint16_t mode
        uint64_t inode
        uint64_t size
        ks_time born
        ks_time modified
    enum: KS_BORN
    int ks_file_status(int fd, const char* path, int follows, ks_statx* to, uint64_t* device) nogil
    int ks_open_small(const char* path, int64_t most, int64_t* size) nogil
    int64_t ks_read_and_close(int fd, char* to, int64_t size) nogil
    int64_t ks_regular_size(const char* path) nogil
    int64_t ks_cached_pages(int fd, uint64_t position, uint64_t size, uint64_t* pages) nogil

cdef extern from "Python.h":
    bytes PyUnicode_EncodeFSDefault(object text)


cdef enum:
    SMALL_FILE_BYTES = 1048576

# 0 if the file system does not keep it.
cdef inline int64_t born_ns(const ks_statx* status) noexcept nogil:
    return status.born.seconds * 1_000_000_000 + status.born.nanoseconds if status.mask & KS_BORN else 0


# Lifetime: of `path`.
cdef const char* text_of(bytes path) except NULL:
    if b"\0" in path:
        raise ValueError("embedded null byte")
    return PyBytes_AS_STRING(path)


def file_status(of, *, bint follow_symlinks=True):
    """Return the status of a path or of an open descriptor, by one system call, with the time of birth.

    Returns: (mode, size in bytes, device, inode, ns of the last modification, ns of the birth or 0 if the file system
        does not keep it); None where the system has no such call, or a sandbox forbids it.
    Raises: OSError; ValueError for a path with a NUL byte.
    Threads: the GIL is released.
    """
    cdef ks_statx status
    cdef uint64_t device = 0
    cdef bytes path = None if isinstance(of, int) else PyUnicode_EncodeFSDefault(of)
    cdef const char* name = NULL
    cdef int fd = -1, failed
    if path is None:
        fd = of
    else:
        name = text_of(path)
    with nogil:
        failed = ks_file_status(fd, name, follow_symlinks, &status, &device)
    if failed in (ENOSYS, EPERM):
        return None
    if failed:
        raise OSError(failed, _strerror(failed), *(() if path is None else (of,)))
    return (status.mode, status.size, device, status.inode,
            <object>status.modified.seconds * 1_000_000_000 + status.modified.nanoseconds,
            born_ns(&status))


cdef struct Looked:
    const char* path
    int64_t size


def regular_sizes(directory, names):
    """Return the size in bytes of each of these files in a directory; links are not followed.

    Returns: of each name a size, None for what is no regular file, is not there, or cannot be looked at; None for all
        where the system has no such call, or a sandbox forbids it.
    Raises: ValueError for a path with a NUL byte; MemoryError.
    Threads: the GIL is released once for all of them.
    """
    cdef list paths = [PyUnicode_EncodeFSDefault(f"{directory}/{name}") for name in names]
    cdef Py_ssize_t count = len(paths), at
    cdef Looked* files = <Looked*>malloc(<size_t>(count + 1) * sizeof(Looked))
    if files == NULL:
        raise MemoryError
    try:
        for at in range(count):
            files[at].path = text_of(paths[at])
        with nogil:
            for at in range(count):
                files[at].size = ks_regular_size(files[at].path)
                if files[at].size == -2:
                    break
        if count and files[at].size == -2:
            return None
        return [None if files[at].size < 0 else files[at].size for at in range(count)]
    finally:
        free(files)


def read_small_file(path, *, int64_t max_bytes):
    """Return the whole content of a regular file that is small, by four system calls; a link is not followed.

    Returns: None for a file above 1 MiB or max_bytes, for what is no regular file, and after any failure but the raised
        ones: a caller that does the same in steps finds out which.
    Raises: FileNotFoundError; ValueError for a path with a NUL byte; MemoryError.
    Threads: the GIL is released.
    """
    cdef bytes name = PyUnicode_EncodeFSDefault(path), content
    cdef const char* text = text_of(name)
    cdef char* to = NULL
    cdef int64_t size = 0, done
    cdef int fd
    with nogil:
        fd = ks_open_small(text, min(max_bytes, <int64_t>SMALL_FILE_BYTES), &size)
    if fd == -ENOENT:
        raise FileNotFoundError(ENOENT, _strerror(ENOENT), path)
    if fd < 0:
        return None
    try:
        content = PyBytes_FromStringAndSize(NULL, size)
        to = PyBytes_AS_STRING(content)
    finally:
        with nogil:
            done = ks_read_and_close(fd, to, size if to != NULL else 0)
    if done < 0:
        return None
    return content if done == size else content[:done]


def are_cached(int fd, *, uint64_t position, uint64_t size):
    """Whether all pages with bytes of a part of a file are in memory, or are being read, by one system call.

    Returns: None where the system cannot say it, or does not tell this user of this file.
    Requires: size is not 0.  Threads: the GIL is released.
    """
    cdef uint64_t pages = 0
    cdef int64_t cached
    with nogil:
        cached = ks_cached_pages(fd, position, size, &pages)
    return None if cached < 0 else <uint64_t>cached >= pages


cdef extern from *:
    """
    #include <sys/socket.h>
    #ifdef MSG_MORE
    #define KS_MORE MSG_MORE
    #else
    #define KS_MORE 0
    #endif
    """
    enum: KS_MORE
    ssize_t ks_send "send"(int fd, const void* data, size_t size, int flags) nogil


def send_part(int fd, data, *, bint is_last):
    """Hand bytes to a socket that does not block; return how many it takes at once.

    Linux keeps what does not fill a segment until more is sent, unless it is the last part.
    Raises: OSError as the socket's own send().
    Threads: the GIL is released.
    """
    cdef Py_buffer view
    cdef ssize_t count
    cdef int why
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    with nogil:
        count = ks_send(fd, view.buf, <size_t>view.len, 0 if is_last else KS_MORE)
        why = errno
    PyBuffer_Release(&view)
    if count < 0:
        raise OSError(why, _strerror(why))
    return count


cdef extern from "<sys/mman.h>" nogil:
    enum: PROT_READ
    enum: MAP_SHARED
    void* MAP_FAILED
    void* map_memory "mmap"(void* address, size_t size, int protection, int flags, int fd, int64_t offset)
    int unmap_memory "munmap"(void* address, size_t size)


@cython.final
cdef class MappedBytes:
    """The first `size` bytes of an open file as a read-only buffer in the page cache; the file may be closed.

    Raises: ValueError for a size below 1; OSError.
    Requires: nobody shortens the file below `size` while a view is in use: a read beyond its end, or of a page that the
        disk cannot read, ends the process (SIGBUS).
    Lifetime: a view keeps the map alive.  Threads: safe.
    """

    cdef void* address
    cdef readonly Py_ssize_t size_in_bytes

    def __cinit__(self, int fd, *, Py_ssize_t size):
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}")
        cdef void* address = map_memory(NULL, <size_t>size, PROT_READ, MAP_SHARED, fd, 0)
        if address == MAP_FAILED:
            PyErr_SetFromErrno(OSError)
        self.address, self.size_in_bytes = address, size

    def __dealloc__(self):
        if self.address != NULL:
            unmap_memory(self.address, <size_t>self.size_in_bytes)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.address, self.size_in_bytes, 1, flags)


cdef enum:
    MOST_BYTES_WITH_GIL = 32768     # as much as two common batches


# `size` bytes of a file, None unless all are in the page cache.
cdef bytes cached_bytes(int fd, Py_ssize_t size, int64_t position):
    cdef bytes data = PyBytes_FromStringAndSize(NULL, size)
    return data if ks_pread_cached(fd, PyBytes_AS_STRING(data), <size_t>size, position) == size else None


cdef class PositionedFile:
    """The descriptor of an open file for positioned reads by many threads; close() takes effect after running reads.

    A small read of what is in the page cache keeps the GIL: to give it up and get it back takes longer than the read
    when other threads run.
    Args: system: the module os, whose functions are called; to_error(action, path, error): makes a StorageError of an
        OSError.
    Threads: as ReadFile.
    """

    cdef object system
    cdef object to_error
    cdef public object path
    cdef public int _fd
    cdef int unclosed
    cdef int64_t reads

    def __init__(self, int fd, *, path, system, to_error):
        self._fd = fd
        self.path = path
        self.system = system
        self.to_error = to_error
        self.unclosed = -1
        self.reads = 0

    def fileno(self):
        """Return the descriptor, valid until close().  Raises: LogClosedError after it."""
        if self._fd < 0:
            raise LogClosedError(f"{self.path} was closed before the call", path=self.path)
        return self._fd

    def pread(self, Py_ssize_t size, *, position):
        """Return up to `size` bytes from `position`; fewer only at the end of the file.

        Raises: StorageError; LogClosedError after close().
        """
        return self.read_bytes(size, position)

    def pread_cached(self, Py_ssize_t size, *, int64_t position):
        """Return `size` bytes from `position` if they are in the page cache, or if the file system cannot say that.

        Returns: None if they are not, or if the file ends before.
        Raises: as pread.
        Threads: the GIL is released.
        """
        cdef bytes data
        cdef char* to
        cdef int fd = self._fd
        cdef int why
        cdef Py_ssize_t done
        if type(self).pread is not PositionedFile.pread:    # a subclass reads otherwise
            data = self.pread(size, position=position)
            return data if PyBytes_GET_SIZE(data) == size else None
        data = PyBytes_FromStringAndSize(NULL, size)
        to = PyBytes_AS_STRING(data)
        self.reads += 1
        try:
            with nogil:
                done = ks_pread_cached(fd, to, <size_t>size, position)
                why = errno
        finally:
            self.end_read()
        if done < 0 and why != EAGAIN:
            data = self.read_bytes(size, position)
            done = PyBytes_GET_SIZE(data)
        return data if done == size else None

    cdef bytes read_bytes(self, Py_ssize_t size, int64_t position):
        cdef bytes data
        if 0 < size <= MOST_BYTES_WITH_GIL and (data := cached_bytes(self._fd, size, position)) is not None:
            return data
        return self.read_waiting(size, position)

    cdef bytes read_waiting(self, Py_ssize_t size, int64_t position):
        cdef bytes data
        cdef int fd = self._fd
        self.reads += 1
        try:
            data = self.system.pread(fd, size, position)
            if 0 < PyBytes_GET_SIZE(data) < size:
                return self.read_on(fd, data, size, position)
            return data
        except StorageError:
            raise
        except OSError as error:
            raise self.failed("read", error) from error
        finally:
            self.end_read()

    def map(self, Py_ssize_t size):
        """Return the first `size` bytes as MappedBytes; see there what this requires.

        Raises: StorageError; LogClosedError after close(); ValueError.
        """
        cdef int fd = self._fd
        try:
            return MappedBytes(fd, size=size)
        except OSError as error:
            raise self.failed("map", error) from error

    def walk_cached(self, HeaderScan scan):
        """Continue a scan of this file by small reads, one for each header.

        Continues while batches are large and their headers are in the page cache, so that a file on a cold disk is
        still read in chunks. Raises nothing: it stops before what it cannot read, and the caller then feeds a chunk.
        """
        cdef uint8_t header[BATCH_HEADER_SIZE]
        cdef Header h
        cdef int fd = self._fd
        if fd < 0 or scan.w.state != SCAN_MORE or not has_large_batches(&scan.w):
            return
        self.reads += 1
        try:
            with nogil:
                walk_cached_headers(&scan.w, fd, header, &h, &scan.problem)
        finally:
            self.end_read()
        if scan.w.state == SCAN_FOUND:
            scan.found = new_header(header, scan.w.position)

    def close(self):
        """Close the file; a second call does nothing."""
        if self._fd >= 0:
            self.unclosed, self._fd = self._fd, -1
            if self.reads == 0:
                self.close_unread()

    cdef bytes read_on(self, int fd, bytes data, Py_ssize_t size, int64_t position):
        cdef list parts = [data]
        cdef Py_ssize_t done = len(data)
        while done < size and (data := self.system.pread(fd, size - done, position + done)):
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    cdef object failed(self, action, error):
        if self._fd < 0:
            return LogClosedError(f"{self.path} was closed before the call", path=self.path)
        return self.to_error(action, self.path, error)

    cdef int end_read(self) except -1:
        self.reads -= 1
        if self.unclosed >= 0 and self.reads == 0:
            self.close_unread()
        return 0

    cdef int close_unread(self) except -1:
        cdef int fd = self.unclosed
        self.unclosed = -1
        try:
            self.system.close(fd)
        except OSError as error:
            raise self.to_error("close", self.path, error) from error
        return 0


cdef class FetchRangeCore:
    """FetchRangeCore(bounds, records=None, *, position=0, size_in_bytes=0)\n--\n
    The part of a file that a fetch found, without Python frames for what each answer does; the base of FetchRange.

    Args: bounds: the FetchData; records: the SegmentRecords that lend the file, None without records.
    Fields: _loan (None without records and after close()).
    """

    cdef object _bounds
    cdef readonly object _loan
    cdef readonly object file
    cdef readonly int64_t position
    cdef readonly int64_t size_in_bytes

    def __init__(self, bounds, records=None, *, int64_t position=0, int64_t size_in_bytes=0):
        self._bounds, self.position, self.size_in_bytes = bounds, position, size_in_bytes
        if records is not None:
            self._loan = records.lend()
            self.file = self._loan.value

    def __len__(self):
        return self.size_in_bytes

    def bounds(self):
        """Return the result of the fetch without the bytes of the records."""
        return self._bounds

    def close(self):
        """Give the file back; a second call does nothing. What uses it afterwards may meet another file."""
        loan, self._loan = self._loan, None
        if loan is not None:
            loan.give_back()

    def __del__(self):
        if self._loan is not None:
            self._loan.give_back_soon()


# Returns: the file, if a pread is its own method, so that read_at calls it without the interpreter; else the pread.
cdef object reader_of(pread):
    file = getattr(pread, "__self__", None)
    return file if isinstance(file, PositionedFile) and type(file).pread is PositionedFile.pread else pread


# Reads as pread(size, position=position) does. Args: reader: from reader_of.
cdef inline bytes read_at(reader, int64_t size, int64_t position):
    if isinstance(reader, PositionedFile):
        return (<PositionedFile>reader).read_bytes(size, position)
    return reader(size, position=position)


# Reads as read_at does, into memory.  Requires: 0 < size <= MOST_BYTES_WITH_GIL.  Returns: how many bytes were read.
cdef Py_ssize_t fill_at(reader, uint8_t* to, Py_ssize_t size, int64_t position) except -1:
    cdef bytes data
    cdef Py_ssize_t done
    if not isinstance(reader, PositionedFile):
        data = reader(size, position=position)
    elif ks_pread_cached((<PositionedFile>reader)._fd, to, <size_t>size, position) == size:
        return size
    else:
        data = (<PositionedFile>reader).read_waiting(size, position)
    done = min(PyBytes_GET_SIZE(data), size)
    memcpy(to, PyBytes_AS_STRING(data), <size_t>done)
    return done


# Linux keeps what one call writes in pieces of memory as large as the call, for which it moves other pages away: 240
# MiB in calls of 1 MiB took 0.22 s of CPU time, in smaller ones 0.06.
WRITE_BYTES = 262_144
cdef Py_ssize_t most_bytes_per_call = WRITE_BYTES


cdef int write_on(system, int fd, view, Py_ssize_t done, position) except -1:
    cdef Py_ssize_t size = len(view), count
    while done < size:
        count = system.pwrite(fd, view[done:done + most_bytes_per_call], position + done)
        if count == 0:
            raise OSError(EIO, f"wrote {done} of {size} bytes, then nothing")
        done += count
    return 0


# Adds no C fields or methods, so that a Python class may inherit from it and from a Python subclass of PositionedFile.
cdef class PositionedWriteFile(PositionedFile):
    """A PositionedFile that is also written, by one thread at a time."""

    def pwrite(self, data, *, position):
        """Write a whole buffer of unsigned bytes at `position`; one system call takes WRITE_BYTES at most.

        Raises: StorageError, after which any part may have been written; LogClosedError after close().
        """
        cdef Py_ssize_t size = len(data), done = 0
        try:
            if size <= most_bytes_per_call:
                done = self.system.pwrite(self._fd, data, position)
            if done < size:
                write_on(self.system, self._fd, memoryview(data), done, position)
        except StorageError:
            raise
        except OSError as error:
            raise self.failed("write", error) from error


cdef extern from *:
    """
    #include <sys/uio.h>
    #include <unistd.h>

    /* Writes two adjacent pieces of memory; only the first one where a system may lack pwritev, as macOS before 11.
       Returns: how many bytes were written, or -errno. */
    static Py_ssize_t ks_pwrite_both(int fd, const void* first, size_t first_size, const void* second,
                                     size_t second_size, int64_t position) {
    #ifdef __linux__
        struct iovec parts[2] = {{(void*)first, first_size}, {(void*)second, second_size}};
        ssize_t done = pwritev(fd, parts, 2, (off_t)position);
    #else
        ssize_t done = pwrite(fd, first, first_size, (off_t)position);
        (void)second, (void)second_size;
    #endif
        return done < 0 ? -errno : done;
    }
    """
    Py_ssize_t ks_pwrite_both(int fd, const void* first, size_t first_size, const void* second, size_t second_size,
                              int64_t position) nogil

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1


# Returns: whether the bytes of a buffer cannot change while it exists.
cdef inline bint is_unchanging(object buffer) noexcept:
    cdef const Py_buffer* raw
    if type(buffer) is not memoryview:
        return type(buffer) is bytes
    raw = PyMemoryView_GET_BUFFER(buffer)
    return <const void*>raw.obj != NULL and type(raw.obj) is bytes


@cython.final
@cython.no_gc
@cython.freelist(4)
cdef class StampedBatch:
    """One batch of magic 2 as it is written: a header with other fields, and the rest where it lies, or in a copy if
    anyone could change it there.

    Lifetime: keeps the memory of the rest.  Threads: safe once the header is filled.
    """

    cdef uint8_t header[BATCH_HEADER_SIZE]
    cdef bytes owner              # of the memory of the batch as it was sent
    cdef const uint8_t* data      # this batch
    cdef Py_ssize_t size

    cdef int take(self, records) except -1:
        cdef Py_buffer view
        cdef uint8_t* copy
        if type(records) is bytes:
            self.owner = <bytes>records
            self.data, self.size = <const uint8_t*>PyBytes_AS_STRING(self.owner), PyBytes_GET_SIZE(self.owner)
            return 0
        PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
        self.data, self.size = <const uint8_t*>view.buf, view.len
        try:
            if is_unchanging(records):
                self.owner = <bytes>PyMemoryView_GET_BUFFER(records).obj
            else:
                self.owner = PyBytes_FromStringAndSize(NULL, view.len)
                copy = <uint8_t*>PyBytes_AS_STRING(self.owner)
                with nogil:
                    memcpy(copy, view.buf, <size_t>view.len)
                self.data = copy
        finally:
            PyBuffer_Release(&view)
        return 0

    def __len__(self):
        return self.size

    def __bytes__(self):
        return b"".join(self.parts())

    # Returns: the bytes of the batch as it was sent, from `start` on.
    cdef object rest_from(self, Py_ssize_t start):
        cdef Py_ssize_t at = self.data - <const uint8_t*>PyBytes_AS_STRING(self.owner)
        return memoryview(self.owner)[at + start:at + self.size]

    cdef list parts(self):
        header = PyBytes_FromStringAndSize(<const char*>self.header, BATCH_HEADER_SIZE)
        return [header, self.rest_from(BATCH_HEADER_SIZE)]


cdef class AppendedFile:
    """The end of a file of records, at which one thread appends without a Python frame; the base class of FileRecords.

    Fields: _size_in_bytes (of the records), _writer (the WriteFile; None without a descriptor), _plain_writer (the same if
        it may be written without its methods, else None), _failure (the error after which nothing may be written, or
        None), _is_closed, _is_undoing (a failed append is being undone).
    Requires: a subclass with _writable() (the WriteFile, or the error that forbids to write), _too_large(size) (an
        error), _undo_append(writer, error).
    """

    cdef public int64_t _size_in_bytes
    cdef public object _writer
    cdef public PositionedWriteFile _plain_writer
    cdef public object _failure
    cdef public bint _is_closed
    cdef public bint _is_undoing

    def append_bytes(self, batches):
        """Write the bytes of batches as append does; a memoryview must be of unsigned bytes. Raises as append."""
        cdef Py_ssize_t size = len(batches)
        self.append_content(batches, size)
        return size

    def append_parts(self, list parts not None, int64_t size_in_bytes):
        """Write several adjacent buffers as append does, without joining them; raises as append."""
        self.append_at_end(parts, size_in_bytes)
        return size_in_bytes

    cdef int append_content(self, batches, int64_t size) except -1:
        if type(batches) is StampedBatch and (self._plain_writer is None or size > most_bytes_per_call):
            batches = (<StampedBatch>batches).parts()
        elif size > most_bytes_per_call:
            batches = [batches]
        return self.append_at_end(batches, size)

    cdef int append_at_end(self, content, int64_t size) except -1:
        cdef int64_t end = self._size_in_bytes
        writer = self._writer
        if writer is None or self._is_closed or self._failure is not None:
            writer = self._writable()
        if size > INT32_MAX - end:
            raise self._too_large(end + size)
        try:
            if type(content) is list:
                writer.pwritev(content, position=end, size=size)
            elif type(content) is StampedBatch:
                write_stamped(self._plain_writer, <StampedBatch>content, end)
            else:
                writer.pwrite(content, position=end)
        except BaseException as error:
            self._is_undoing = True
            self._undo_append(writer, error)
            raise
        self._size_in_bytes = end + size
        return 0


# Returns: the file, if `write` is its own append_bytes, so that append_content may be called in its place; else None.
cdef AppendedFile appended_by(write):
    file = getattr(write, "__self__", None)
    is_own = isinstance(file, AppendedFile) and type(file).append_bytes is AppendedFile.append_bytes \
        and getattr(write, "__name__", None) == "append_bytes"
    return <AppendedFile>file if is_own else None


# Writes a batch by one system call, without an object for any part of it; what that leaves, by pwrite.
cdef int write_stamped(PositionedWriteFile file, StampedBatch batch, int64_t position) except -1:
    cdef Py_ssize_t done
    cdef int fd = file._fd
    cdef const uint8_t* rest = batch.data + BATCH_HEADER_SIZE
    with nogil:
        done = ks_pwrite_both(fd, batch.header, BATCH_HEADER_SIZE, rest, <size_t>batch.size - BATCH_HEADER_SIZE, position)
    if done == batch.size:
        return 0
    if done < 0 and done != -EINTR:
        error = OSError(-done, _strerror(-done))
        raise file.failed("write", error) from error
    PyErr_CheckSignals()
    done = max(done, 0)
    file.pwrite(bytes(batch)[done:], position=position + done)
    return 0
