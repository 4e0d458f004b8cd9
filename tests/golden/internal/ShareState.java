import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.share.ShareCoordinatorRecordHelpers;
import org.apache.kafka.coordinator.share.ShareCoordinatorRecordSerde;
import org.apache.kafka.coordinator.share.ShareGroupOffset;
import org.apache.kafka.server.share.persister.PersisterStateBatch;

/**
 * Writes a segment of __share_group_state as the share coordinator does: snapshots, updates and tombstones of share
 * partitions, in batches of several records, with the coordinator's own record helpers and serde.
 *
 * <p>Arguments: the file to write.
 */
public final class ShareState {
    private static final int BATCHES = 40;

    private final Random random = new Random(33);
    private final ShareCoordinatorRecordSerde serde = new ShareCoordinatorRecordSerde();
    private long time = 1_700_000_000_000L;

    public static void main(String[] arguments) throws Exception {
        new ShareState().write(new File(arguments[0]));
    }

    private void write(File file) throws Exception {
        long offset = 0;
        try (FileRecords log = FileRecords.open(file, true)) {
            for (int batch = 0; batch < BATCHES; batch++) {
                List<SimpleRecord> records = new ArrayList<>();
                for (int i = 0; i <= random.nextInt(4); i++) {
                    records.add(serialized(record()));
                }
                SimpleRecord[] all = records.toArray(new SimpleRecord[0]);
                log.append(MemoryRecords.withRecords(offset, Compression.NONE, batch / 10, all));
                offset += all.length;
            }
            log.flush();
        }
    }

    private SimpleRecord serialized(CoordinatorRecord record) {
        time += random.nextInt(1000);
        return new SimpleRecord(time, serde.serializeKey(record), serde.serializeValue(record));
    }

    private CoordinatorRecord record() {
        String group = random.nextInt(5) == 0 ? "gr\u00fcppe \"x\"" : "share-" + random.nextInt(3);
        Uuid topic = new Uuid(random.nextLong(), random.nextLong());
        int partition = random.nextInt(100);
        switch (random.nextInt(5)) {
            case 0:
                return ShareCoordinatorRecordHelpers.newShareStateTombstoneRecord(group, topic, partition);
            case 1:
            case 2:
                return ShareCoordinatorRecordHelpers.newShareSnapshotRecord(group, topic, partition, state());
            default:
                return ShareCoordinatorRecordHelpers.newShareUpdateRecord(group, topic, partition, state());
        }
    }

    private ShareGroupOffset state() {
        List<PersisterStateBatch> batches = new ArrayList<>();
        long offset = random.nextInt(1000);
        for (int i = random.nextInt(4); i > 0; i--) {
            long last = offset + random.nextInt(50);
            byte[] states = {0, 2, 4};
            byte state = states[random.nextInt(states.length)];
            batches.add(new PersisterStateBatch(offset, last, state, (short) (1 + random.nextInt(5))));
            offset = last + 1;
        }
        return new ShareGroupOffset.Builder()
                .setSnapshotEpoch(random.nextInt(10))
                .setStateEpoch(random.nextInt(10))
                .setLeaderEpoch(random.nextInt(10))
                .setStartOffset(random.nextInt(6) == 0 ? -1 : offset)
                .setCreateTimestamp(time)
                .setWriteTimestamp(time + random.nextInt(1000))
                .setStateBatches(batches)
                .build();
    }
}
