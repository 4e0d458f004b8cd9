import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.common.TopicPartition;

/** Members with an instance id: they come back to their partitions, are fenced, and are removed. */
final class StaticMembers {
    private StaticMembers() {}

    static void run(JavaClients.Servers servers, Admin admin, Answers answers) throws Exception {
        for (Map.Entry<String, String> one : Map.of("classic", "RangeAssignor", "consumer", "uniform").entrySet()) {
            String protocol = one.getKey();
            String topic = "static-" + protocol;
            TopicQuestions.make(admin, new NewTopic(topic, 4, (short) 1));
            Member first = member(servers, protocol, one.getValue(), "a", GroupMembershipOperation.DEFAULT);
            Member second = member(servers, protocol, one.getValue(), "b", GroupMembershipOperation.DEFAULT);
            Answers.await("both assigned", () -> first.assigned.size() == 2 && second.assigned.size() == 2);
            Set<TopicPartition> before = second.assigned;
            int rebalances = first.rebalances.get();
            second.close();
            Member again = member(servers, protocol, one.getValue(), "b", GroupMembershipOperation.DEFAULT);
            Answers.await("assigned again", () -> again.assigned.size() == 2);
            answers.say(protocol + ": it has its partitions again", again.assigned.equals(before));
            answers.say(protocol + ": others saw no rebalance", first.rebalances.get() - rebalances);
            answers.ask(protocol + ": described", () ->
                    Groups.shown(admin.describeConsumerGroups(List.of(topic)).all().get().get(topic)));
            Member dynamic = Member.start(
                    Member.properties(servers, topic, protocol, one.getValue()), topic);
            Answers.await("the one without an instance is assigned", () -> !dynamic.assigned.isEmpty());
            Member same = member(servers, protocol, one.getValue(), "a", GroupMembershipOperation.DEFAULT);
            Answers.await("one is fenced", () -> first.error != null || same.error != null);
            answers.say(protocol + ": error of the older", first.error);
            answers.say(protocol + ": error of the newer", same.error);
            answers.ask(protocol + ": remove an instance", () -> admin.removeMembersFromConsumerGroup(
                            topic, new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("b"))))
                    .all()
                    .get());
            answers.ask(protocol + ": remove no instance", () -> admin.removeMembersFromConsumerGroup(
                            topic, new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("no-such"))))
                    .all()
                    .get());
            answers.ask(protocol + ": remove all", () -> {
                admin.removeMembersFromConsumerGroup(topic, new RemoveMembersFromConsumerGroupOptions()).all().get();
                return "removed";
            });
            for (Member member : List.of(first, same, again, dynamic)) {
                member.close();
            }
            Member leaving = member(servers, protocol, one.getValue(), "c", GroupMembershipOperation.LEAVE_GROUP);
            Answers.await("the third is assigned", () -> !leaving.assigned.isEmpty());
            leaving.close();
            answers.ask(protocol + ": the one that left is not there", () -> admin
                    .describeConsumerGroups(List.of(topic))
                    .all()
                    .get()
                    .get(topic)
                    .members()
                    .stream()
                    .noneMatch(it -> it.groupInstanceId().equals(java.util.Optional.of("c"))));
        }
    }

    private static Member member(
            JavaClients.Servers servers, String protocol, String assignor, String instance, GroupMembershipOperation leaves) {
        Properties properties = Member.properties(servers, "static-" + protocol, protocol, assignor);
        properties.put("group.instance.id", instance);
        return Member.start(properties, "static-" + protocol, leaves);
    }
}
