import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.NoSuchAlgorithmException;

/**
 * What Kafka's own classes make of record batches; compiled with one KafkaClient.java, against the kafka-clients it fits.
 *
 * <p>Interop read DIRECTORY: for each CASE.batch the batches and records as JSON lines. Interop write DIRECTORY: for each
 * CASE.recipe a CASE.kafka. A case that Kafka refuses is a line with "error"; it may do so by an Error, that of the
 * snappy library or an OutOfMemoryError.
 */
public final class Interop {
    /** One generation of Kafka's record classes. */
    interface Client {
        /** Report every batch and record, CRCs checked. */
        void read(String caseName, ByteBuffer data, Report report);

        ByteBuffer write(Recipe recipe);
    }

    private interface Step {
        void run(String caseName, Path file) throws IOException;
    }

    public static void main(String[] arguments) throws IOException, NoSuchAlgorithmException {
        Client client = new KafkaClient();
        try (PrintStream output = new PrintStream(new BufferedOutputStream(System.out, 1 << 20), false)) {
            Report report = new Report(output);
            Path directory = Path.of(arguments[1]);
            if (arguments[0].equals("read")) {
                each(directory, ".batch", report, (name, file) -> read(client, name, file, report));
            } else {
                each(directory, ".recipe", report, (name, file) -> write(client, name, file));
            }
        }
    }

    private static void each(Path directory, String suffix, Report report, Step step) throws IOException {
        try (DirectoryStream<Path> files = Files.newDirectoryStream(directory, "*" + suffix)) {
            for (Path file : files) {
                String name = file.getFileName().toString().replace(suffix, "");
                try {
                    step.run(name, file);
                } catch (RuntimeException | Error refusal) {
                    report.begin(name).putText("error", refusal.toString()).end();
                }
            }
        }
    }

    private static void read(Client client, String name, Path file, Report report) throws IOException {
        client.read(name, ByteBuffer.wrap(Files.readAllBytes(file)), report);
    }

    private static void write(Client client, String name, Path file) throws IOException {
        try (DataInputStream input = new DataInputStream(new BufferedInputStream(Files.newInputStream(file)))) {
            ByteBuffer data = client.write(Recipe.read(input));
            byte[] bytes = new byte[data.remaining()];
            data.get(bytes);
            Files.write(file.resolveSibling(name + ".kafka"), bytes);
        }
    }
}
