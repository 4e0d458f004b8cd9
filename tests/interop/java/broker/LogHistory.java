import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.DigestException;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Delayed;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.FetchResponseData.AbortedTransaction;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.FileRecords.TimestampAndOffset;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.Records;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.PreCleanStats;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Does to one UnifiedLog what the lines of standard input say, fields parted by tabs, and answers each with one line of
 * JSON: what the call returned, or the class of its error.
 *
 * <p>open DIRECTORY CLEAN START POINT NOW NAME=VALUE... | clock MS | leader EPOCH ORIGIN VERIFY BASE64 | follower EPOCH BASE64 |
 * roll | truncate OFFSET | restart OFFSET START | delete OFFSET | retain | mark OFFSET | expire | close | state |
 * fetch OFFSET BYTES ISOLATION MIN_ONE | time MS | clean MAP_BYTES LOAD_FACTOR BUFFER_BYTES
 */
public final class LogHistory {
    private final Report report;
    private final Clock clock = new Clock();
    private final BrokerTopicStats stats = new BrokerTopicStats(false);
    private UnifiedLog log;
    private LogCleanerManager cleanable;

    private LogHistory(PrintStream output) throws NoSuchAlgorithmException {
        report = new Report(output);
    }

    public static void main(String[] arguments) throws IOException, NoSuchAlgorithmException {
        PrintStream output = new PrintStream(System.out, false);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        LogHistory history = new LogHistory(output);
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            try {
                history.run(line.split("\t", -1));
            } catch (Exception failure) {
                history.report.begin("error");
                history.report.putText("error", failure.getClass().getSimpleName());
                history.report.putText("message", String.valueOf(failure.getMessage())).end();
            }
            output.flush();
        }
    }

    private void run(String[] fields) throws IOException, NoSuchAlgorithmException, DigestException {
        switch (fields[0]) {
            case "open" -> open(fields);
            case "clock" -> clock.milliseconds = Long.parseLong(fields[1]);
            case "leader" -> {
                lead(fields);
                return;
            }
            case "follower" -> {
                appended(log.appendAsFollower(records(fields[2]), Integer.parseInt(fields[1])));
                return;
            }
            case "roll" -> {
                if (log.activeSegment().size() > 0 || log.activeSegment().baseOffset() < log.logEndOffset()) {
                    log.roll();
                }
            }
            case "truncate" -> {
                log.truncateTo(Long.parseLong(fields[1]));
                lowerCheckpoint();
            }
            case "restart" -> {
                log.truncateFullyAndStartAt(Long.parseLong(fields[1]), Optional.of(Long.parseLong(fields[2])));
                lowerCheckpoint();
            }
            case "delete" -> {
                log.maybeIncrementLogStartOffset(
                        Long.parseLong(fields[1]), LogStartOffsetIncrementReason.ClientRecordDeletion);
                log.deleteOldSegments();
            }
            case "retain" -> log.deleteOldSegments();
            case "mark" -> log.updateHighWatermark(Long.parseLong(fields[1]));
            case "expire" -> log.removeExpiredProducers(clock.milliseconds);
            case "close" -> {
                log.close();
                log.removeLogMetrics();
            }
            case "fetch" -> {
                fetch(fields);
                return;
            }
            case "clean" -> {
                clean(fields);
                return;
            }
            case "time" -> {
                lookUp(Long.parseLong(fields[1]));
                return;
            }
            case "state" -> {
                tell();
                return;
            }
            default -> throw new IllegalArgumentException(fields[0]);
        }
        report.begin("done").end();
    }

    private void open(String[] fields) throws IOException {
        clock.milliseconds = Long.parseLong(fields[5]);
        Map<String, String> settings = new HashMap<>();
        for (int i = 6; i < fields.length; i++) {
            String[] pair = fields[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        int expiration = Integer.parseInt(settings.remove("producer.id.expiration.ms"));
        boolean verifies = Boolean.parseBoolean(settings.remove("transaction.partition.verification.enable"));
        log = UnifiedLog.create(
                new File(fields[1]),
                new LogConfig(settings),
                Long.parseLong(fields[3]),
                Long.parseLong(fields[4]),
                new Immediately(),
                stats,
                clock,
                60 * 60 * 1000,
                new ProducerStateManagerConfig(expiration, verifies),
                Integer.MAX_VALUE,
                new LogDirFailureChannel(10),
                Boolean.parseBoolean(fields[2]),
                Optional.empty());
        ConcurrentHashMap<TopicPartition, UnifiedLog> logs = new ConcurrentHashMap<>();
        logs.put(log.topicPartition(), log);
        cleanable = new LogCleanerManager(List.of(log.parentDirFile()), logs, new LogDirFailureChannel(10));
    }

    /** What LogManager does after a truncation. */
    private void lowerCheckpoint() {
        cleanable.maybeTruncateCheckpoint(log.parentDirFile(), log.topicPartition(), log.activeSegment().baseOffset());
    }

    /** Cleans until nothing is due, as the thread of a LogCleaner would. */
    private void clean(String[] fields) throws IOException, NoSuchAlgorithmException, DigestException {
        Cleaner cleaner = new Cleaner(
                0,
                new SkimpyOffsetMap(Integer.parseInt(fields[1])),
                Integer.parseInt(fields[3]),
                Integer.MAX_VALUE,
                Double.parseDouble(fields[2]),
                new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", clock),
                clock,
                partition -> { });
        int rounds = 0;
        for (Optional<LogToClean> due = grab(); due.isPresent(); due = grab()) {
            long first = due.get().firstDirtyOffset();
            long end = cleaner.clean(due.get()).getKey();
            cleanable.doneCleaning(log.topicPartition(), log.parentDirFile(), end);
            rounds++;
            if (end <= first) {
                break;
            }
        }
        report.begin("cleaned").put("rounds", rounds);
        report.put("cleaned", cleanable.allCleanerCheckpoints().getOrDefault(log.topicPartition(), -1L)).end();
    }

    private Optional<LogToClean> grab() {
        return cleanable.grabFilthiestCompactedLog(clock, new PreCleanStats());
    }

    private void lead(String[] fields) {
        MemoryRecords records = records(fields[4]);
        VerificationGuard guard = VerificationGuard.SENTINEL;
        if (!fields[3].isEmpty()) {
            // Of the first batch, as a broker asks before an append.
            var batch = records.batches().iterator().next();
            guard = log.maybeStartTransactionVerification(
                    batch.producerId(), batch.baseSequence(), batch.producerEpoch(), fields[3].equals("v2"));
        }
        appended(log.appendAsLeader(
                records, Integer.parseInt(fields[1]), AppendOrigin.valueOf(fields[2]), RequestLocal.noCaching(), guard));
    }

    private void appended(LogAppendInfo info) {
        report.begin("appended");
        report.put("base_offset", info.firstOffset()).put("last_offset", info.lastOffset());
        report.put("max_timestamp_ms", info.maxTimestamp()).put("log_append_time_ms", info.logAppendTime()).end();
    }

    private static MemoryRecords records(String text) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(Base64.getDecoder().decode(text)));
    }

    private void fetch(String[] fields) throws IOException {
        FetchDataInfo found = log.read(
                Long.parseLong(fields[1]),
                Integer.parseInt(fields[2]),
                FetchIsolation.valueOf(fields[3]),
                Boolean.parseBoolean(fields[4]));
        Records records = found.records;
        ByteBuffer bytes = ByteBuffer.allocate(records.sizeInBytes());
        if (records instanceof MemoryRecords) {
            bytes.put(((MemoryRecords) records).buffer());
        } else {
            ((FileRecords) records).readInto(bytes, 0);
        }
        bytes.rewind();
        report.begin("fetched").put("size", bytes.remaining()).putHash("records", bytes);
        List<String> aborted = new ArrayList<>();
        for (AbortedTransaction one : found.abortedTransactions.orElse(List.of())) {
            aborted.add("[" + one.producerId() + "," + one.firstOffset() + "]");
        }
        report.raw("aborted", aborted.toString()).end();
    }

    private void lookUp(long timestamp) {
        Optional<TimestampAndOffset> found =
                log.fetchOffsetByTimestamp(timestamp, Optional.empty()).timestampAndOffsetOpt();
        report.begin("found").put("offset", found.map(one -> one.offset).orElse(-1L));
        report.put("timestamp_ms", found.map(one -> one.timestamp).orElse(-1L)).end();
    }

    private void tell() throws IOException {
        report.begin("state");
        report.put("log_start_offset", log.logStartOffset()).put("log_end_offset", log.logEndOffset());
        report.put("high_watermark", log.highWatermark()).put("last_stable_offset", log.lastStableOffset());
        Collection<LogSegment> segments = log.logSegments();
        for (LogSegment one : segments) {
            // A truncation forgets the largest timestamp of a segment that was not asked for it before; see durability.md.
            one.maxTimestampSoFar();
        }
        report.raw("segments", segments.stream()
                .map(one -> "[" + one.baseOffset() + "," + one.size() + "]").collect(Collectors.toList()).toString());
        report.raw("epochs", log.leaderEpochCache().epochEntries().stream()
                .map(one -> "[" + one.epoch + "," + one.startOffset + "]").collect(Collectors.toList()).toString());
        StringBuilder producers = new StringBuilder();
        for (ProducerStateEntry one : log.producerStateManager().activeProducers().values()) {
            producers.append(producers.isEmpty() ? "{" : ",").append('"').append(one.producerId()).append("\":[");
            producers.append(one.producerEpoch()).append(',').append(one.coordinatorEpoch()).append(',');
            producers.append(one.lastTimestamp()).append(',').append(one.currentTxnFirstOffset().orElse(-1)).append(",[");
            String comma = "";
            for (BatchMetadata batch : one.batchMetadata()) {
                producers.append(comma).append('[').append(batch.lastSeq).append(',').append(batch.lastOffset).append(',');
                producers.append(batch.offsetDelta).append(',').append(batch.timestamp).append(']');
                comma = ",";
            }
            producers.append("]]");
        }
        report.raw("producers", producers.isEmpty() ? "{}" : producers.append('}').toString()).end();
    }

    /** A clock that stands until it is set. */
    private static final class Clock implements Time {
        private long milliseconds;

        @Override
        public long milliseconds() {
            return milliseconds;
        }

        @Override
        public long nanoseconds() {
            return milliseconds * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            milliseconds += ms;
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }

    /** Runs what is to be done once at once, and nothing that is to be done again and again. */
    private static final class Immediately implements Scheduler {
        @Override
        public void startup() { }

        @Override
        public void shutdown() { }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs < 0) {
                task.run();
            }
            return new Done();
        }

        @Override
        public void resizeThreadPool(int newSize) { }
    }

    /** What is over, or never comes. */
    private static final class Done extends FutureTask<Void> implements ScheduledFuture<Void> {
        private Done() {
            super(() -> null);
        }

        @Override
        public long getDelay(TimeUnit unit) {
            return 0;
        }

        @Override
        public int compareTo(Delayed other) {
            return 0;
        }
    }
}
