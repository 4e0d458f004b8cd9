import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import java.util.HexFormat;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;

/** Prints, in hexadecimal, a value that Apicurio's serializer writes for each topic that is named, with ids of a kind. */
public class ApicurioValues {
    public static void main(String[] arguments) {
        String url = arguments[0];
        String kind = arguments[1];
        Schema schema = new Schema.Parser().parse(arguments[2]);
        try (AvroKafkaSerializer<GenericRecord> serializer = new AvroKafkaSerializer<>()) {
            serializer.configure(
                    Map.of(
                            "apicurio.registry.url", url,
                            "apicurio.registry.auto-register", "true",
                            "apicurio.registry.use-id", kind),
                    false);
            for (int at = 3; at < arguments.length; at++) {
                GenericRecord record = new GenericData.Record(schema);
                record.put("name", arguments[at]);
                System.out.println(HexFormat.of().formatHex(serializer.serialize(arguments[at], record)));
            }
        }
    }
}
