import java.io.DataInputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** One batch to be written, as tests/interop/recipes.py tells it: big-endian fields, length -1 for null. */
record Recipe(
        byte magic,
        byte codec,
        boolean isLogAppendTime,
        long logAppendTimeMs,
        long baseOffset,
        long producerId,
        short producerEpoch,
        int baseSequence,
        boolean isTransactional,
        boolean isControl,
        int partitionLeaderEpoch,
        long deleteHorizonMs,
        List<Row> rows) {

    record Field(byte[] key, byte[] value) {}

    record Row(long offset, long timestampMs, byte[] key, byte[] value, List<Field> headers) {}

    static Recipe read(DataInputStream input) throws IOException {
        return new Recipe(
                input.readByte(),
                input.readByte(),
                input.readBoolean(),
                input.readLong(),
                input.readLong(),
                input.readLong(),
                input.readShort(),
                input.readInt(),
                input.readBoolean(),
                input.readBoolean(),
                input.readInt(),
                input.readLong(),
                rows(input));
    }

    private static List<Row> rows(DataInputStream input) throws IOException {
        List<Row> rows = new ArrayList<>();
        for (int left = input.readInt(); left > 0; left--) {
            rows.add(new Row(input.readLong(), input.readLong(), bytes(input), bytes(input), headers(input)));
        }
        return rows;
    }

    private static List<Field> headers(DataInputStream input) throws IOException {
        List<Field> headers = new ArrayList<>();
        for (int left = input.readInt(); left > 0; left--) {
            headers.add(new Field(bytes(input), bytes(input)));
        }
        return headers;
    }

    private static byte[] bytes(DataInputStream input) throws IOException {
        int size = input.readInt();
        return size < 0 ? null : input.readNBytes(size);
    }
}
