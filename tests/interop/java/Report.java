import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;

/** Prints JSON lines; keys and values as the first 16 hexadecimal digits of their SHA-256. */
final class Report {
    private final PrintStream output;
    private final MessageDigest digest;
    private final StringBuilder line = new StringBuilder();

    Report(PrintStream output) throws NoSuchAlgorithmException {
        this.output = output;
        this.digest = MessageDigest.getInstance("SHA-256");
    }

    Report begin(String caseName) {
        line.setLength(0);
        line.append("{\"case\":\"").append(caseName).append('"');
        return this;
    }

    Report put(String name, long value) {
        return raw(name, Long.toString(value));
    }

    Report put(String name, boolean value) {
        return raw(name, Boolean.toString(value));
    }

    /** Put a name of Kafka's, which needs no escape. */
    Report put(String name, Enum<?> value) {
        return raw(name, '"' + value.name() + '"');
    }

    /** Put any text, what needs an escape as a question mark. */
    Report putText(String name, String text) {
        return raw(name, '"' + text.replaceAll("[^ !#-\\[\\]-~]", "?") + '"');
    }

    Report putHash(String name, ByteBuffer data) {
        return raw(name, hash(data));
    }

    Report raw(String name, String json) {
        line.append(",\"").append(name).append("\":").append(json);
        return this;
    }

    String hash(ByteBuffer data) {
        if (data == null) {
            return "null";
        }
        digest.update(data.duplicate());
        return '"' + HexFormat.of().formatHex(digest.digest(), 0, 8) + '"';
    }

    void end() {
        output.println(line.append('}'));
    }
}
