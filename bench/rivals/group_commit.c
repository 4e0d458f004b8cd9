/* The bound of group commit: threads that each write a batch and wait until a shared fdatasync has covered it.
   The one that comes first leads: it waits until all have written, syncs, and wakes them. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct log {
    pthread_mutex_t mutex;
    pthread_cond_t synced_more, all_written;
    const uint8_t *batch;
    int64_t size, written, synced;
    int fd, is_led, threads, failed;
};

struct writer {
    struct log *log;
    int64_t count;
};

static void wait_until_synced(struct log *log, int64_t mine) {
    while (log->synced < mine && !log->failed) {
        if (log->is_led) {
            pthread_cond_wait(&log->synced_more, &log->mutex);
            continue;
        }
        log->is_led = 1;
        while (log->written - log->synced < log->threads)
            pthread_cond_wait(&log->all_written, &log->mutex);
        int64_t covered = log->written;
        pthread_mutex_unlock(&log->mutex);
        int failed = fdatasync(log->fd) != 0;
        pthread_mutex_lock(&log->mutex);
        log->failed |= failed;
        log->synced = covered;
        log->is_led = 0;
        pthread_cond_broadcast(&log->synced_more);
    }
}

static void *write_batches(void *argument) {
    struct writer *writer = argument;
    struct log *log = writer->log;
    pthread_mutex_lock(&log->mutex);
    for (int64_t i = 0; i < writer->count && !log->failed; i++) {
        if (pwrite(log->fd, log->batch, log->size, log->written * log->size) != log->size)
            log->failed = 1;
        int64_t mine = ++log->written;
        if (log->written - log->synced >= log->threads)
            pthread_cond_signal(&log->all_written);
        wait_until_synced(log, mine);
    }
    pthread_mutex_unlock(&log->mutex);
    return NULL;
}

/* Returns the seconds that `threads` of them take for `count` batches each, below 0 after a failure. */
double group_commit(const char *path, const uint8_t *batch, int64_t size, int64_t threads, int64_t count) {
    struct log log = {.mutex = PTHREAD_MUTEX_INITIALIZER, .synced_more = PTHREAD_COND_INITIALIZER,
                      .all_written = PTHREAD_COND_INITIALIZER, .batch = batch, .size = size, .threads = (int)threads};
    struct writer writer = {&log, count};
    struct timespec start, end;
    pthread_t *running = calloc((size_t)threads, sizeof *running);
    log.fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    if (log.fd < 0 || running == NULL) {
        free(running);
        return -1;
    }
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int64_t i = 0; i < threads; i++)
        if (pthread_create(&running[i], NULL, write_batches, &writer) != 0)
            abort();
    for (int64_t i = 0; i < threads; i++)
        pthread_join(running[i], NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    close(log.fd);
    free(running);
    return log.failed ? -1 : (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
}
