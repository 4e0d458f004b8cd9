# Notifications of changes in directories, where the kernel has them (inotify, Linux), and which file systems report all
# changes to it. Elsewhere the functions raise OSError with ENOSYS, and env/watching.py looks from time to time.

cdef extern from *:
    """
    #include <errno.h>
    #if defined(__linux__)
    #include <sys/inotify.h>
    #include <sys/vfs.h>

    #define KS_WATCHED (IN_MODIFY | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF)

    static int ks_watch_open(void) { return inotify_init1(IN_NONBLOCK | IN_CLOEXEC); }
    static int ks_watch_add(int fd, const char *path) {
        return inotify_add_watch(fd, path, KS_WATCHED | IN_ONLYDIR);
    }
    static int ks_watch_remove(int fd, int watch) { return inotify_rm_watch(fd, watch); }

    /* ext2 to ext4, XFS, Btrfs, tmpfs, overlayfs, F2FS, ZFS, bcachefs, ramfs: only this kernel changes their files. */
    static int ks_is_watchable(const char *path) {
        struct statfs found;
        if (statfs(path, &found) < 0) return -1;
        switch ((unsigned long)found.f_type & 0xffffffffUL) {
            case 0xef53UL: case 0x58465342UL: case 0x9123683eUL: case 0x01021994UL: case 0x794c7630UL:
            case 0xf2f52010UL: case 0x2fc12fc1UL: case 0xca451a4eUL: case 0x858458f6UL:
                return 1;
            default:
                return 0;
        }
    }
    #else
    static int ks_watch_open(void) { errno = ENOSYS; return -1; }
    static int ks_watch_add(int fd, const char *path) { (void)fd; (void)path; errno = ENOSYS; return -1; }
    static int ks_watch_remove(int fd, int watch) { (void)fd; (void)watch; errno = ENOSYS; return -1; }
    static int ks_is_watchable(const char *path) { (void)path; return 0; }
    #endif
    """
    int ks_watch_open() noexcept nogil
    int ks_watch_add(int fd, const char* path) noexcept nogil
    int ks_watch_remove(int fd, int watch) noexcept nogil
    int ks_is_watchable(const char* path) noexcept nogil


def open_watches():
    """Return the descriptor of a new inotify instance, non-blocking and not inherited.

    Raises: OSError: ENOSYS where there is none, EMFILE and ENFILE where there are too many.
    """
    cdef int fd = ks_watch_open()
    if fd < 0:
        PyErr_SetFromErrno(OSError)
    return fd


def add_watch(int fd, bytes path not None):
    """Report changes of a directory's names and of its files' contents from now on; return the number of the watch.

    Raises: OSError: ENOSPC if the user has too many watches.
    """
    cdef const char* name = path
    cdef int watch
    with nogil:
        watch = ks_watch_add(fd, name)
    if watch < 0:
        PyErr_SetFromErrno(OSError)
    return watch


def remove_watch(int fd, *, int watch):
    """End a watch.  Raises: OSError: EINVAL if it has ended."""
    if ks_watch_remove(fd, watch) < 0:
        PyErr_SetFromErrno(OSError)


def is_watchable(bytes path not None):
    """Whether a directory is on a file system whose files only this kernel changes, so that it reports all changes.

    Raises: OSError.
    """
    cdef const char* name = path
    cdef int found
    with nogil:
        found = ks_is_watchable(name)
    if found < 0:
        PyErr_SetFromErrno(OSError)
    return found == 1
