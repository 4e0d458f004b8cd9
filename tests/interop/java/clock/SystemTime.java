package org.apache.kafka.common.utils;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * The clock of a broker, in place of Kafka's own class of this name, whose time a test moves ahead.
 *
 * <p>The file that the property interop.clock names has two numbers of 64 bits: how many milliseconds the time is ahead,
 * and how many times slower than the real one it goes meanwhile.
 */
final class SystemTime implements Time {
    private static final int AHEAD_AT = 0;
    private static final int SLOWER_AT = 8;
    private static final int SIZE = 16;
    private static final SystemTime INSTANCE = new SystemTime();

    private final MappedByteBuffer told = mapped();
    private final long startedMs = System.currentTimeMillis();
    private long lastNanos = System.nanoTime();
    private long passedNanos;

    private SystemTime() {}

    public static SystemTime getSystemTime() {
        return INSTANCE;
    }

    private static MappedByteBuffer mapped() {
        try (FileChannel file = FileChannel.open(Path.of(System.getProperty("interop.clock")), StandardOpenOption.READ)) {
            return file.map(MapMode.READ_ONLY, 0, SIZE);
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    @Override
    public long milliseconds() {
        return startedMs + TimeUnit.NANOSECONDS.toMillis(nanoseconds());
    }

    @Override
    public synchronized long nanoseconds() {
        long now = System.nanoTime();
        passedNanos += (now - lastNanos) / told.getLong(SLOWER_AT);
        lastNanos = now;
        return passedNanos + TimeUnit.MILLISECONDS.toNanos(told.getLong(AHEAD_AT));
    }

    @Override
    public void sleep(long milliseconds) {
        Utils.sleep(milliseconds);
    }

    @Override
    public void waitObject(Object watched, Supplier<Boolean> isDone, long deadlineMs) throws InterruptedException {
        synchronized (watched) {
            while (!isDone.get()) {
                long left = deadlineMs - milliseconds();
                if (left <= 0) {
                    throw new TimeoutException("not done before the deadline");
                }
                watched.wait(left);
            }
        }
    }
}
