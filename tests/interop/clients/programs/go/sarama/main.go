// Commands to Sarama: sarama ADDRESS.
package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"kstore/clients/asking"
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

const patience = time.Minute

type client struct {
	address       []string
	last          sarama.ClusterAdmin
	transactional map[string]sarama.SyncProducer
	member        *member
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V4_1_0_0
	config.ClientID = "sarama"
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.MaxMessageBytes = 10_000_000
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	return config
}

// admin is another administrator each time: one does not outlive the connections of a broker that ends.
func (c *client) admin() sarama.ClusterAdmin {
	if c.last != nil {
		c.last.Close()
	}
	var err error
	if c.last, err = sarama.NewClusterAdmin(c.address, settings()); err != nil {
		asking.Fail(err)
	}
	return c.last
}

func (c *client) create(command asking.Command) (any, error) {
	entries := map[string]*string{}
	for name, value := range command.Values() {
		entries[name] = &value
	}
	return nil, c.admin().CreateTopic(command.Topic, &sarama.TopicDetail{
		NumPartitions: command.Partitions, ReplicationFactor: int16(command.Replicas), ConfigEntries: entries,
	}, false)
}

func (c *client) describe(command asking.Command) (any, error) {
	found, err := c.admin().DescribeTopics([]string{command.Topic})
	if err != nil {
		return nil, err
	}
	if found[0].Err != sarama.ErrNoError {
		return nil, found[0].Err
	}
	partitions := [][]any{}
	for _, one := range found[0].Partitions {
		partitions = append(partitions, []any{one.ID, one.Leader, one.Replicas, one.Isr})
	}
	slices.SortFunc(partitions, func(a, b []any) int { return int(a[0].(int32) - b[0].(int32)) })
	shown := map[string]any{}
	entries, err := c.admin().DescribeConfig(sarama.ConfigResource{
		Type: sarama.TopicResource, Name: command.Topic, ConfigNames: command.Names(),
	})
	for _, entry := range entries {
		shown[entry.Name] = []any{entry.Value, entry.Source}
	}
	return map[string]any{"partitions": partitions, "settings": shown}, err
}

func messages(command asking.Command) (sent []*sarama.ProducerMessage) {
	for _, row := range command.Records {
		message := &sarama.ProducerMessage{
			Topic: command.Topic, Partition: command.Partition, Timestamp: time.UnixMilli(row.Timestamp),
		}
		if row.Key != nil {
			message.Key = sarama.StringEncoder(*row.Key)
		}
		if row.Value != nil {
			message.Value = sarama.StringEncoder(*row.Value)
		}
		for _, header := range row.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header[0]), Value: []byte(header[1])})
		}
		sent = append(sent, message)
	}
	return sent
}

func (c *client) produce(command asking.Command) (any, error) {
	config := settings()
	config.Producer.Compression = codecs[command.Codec]
	if command.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer(c.address, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	sent := messages(command)
	err = producer.SendMessages(sent)
	offsets := []int64{}
	for _, message := range sent {
		offsets = append(offsets, message.Offset)
	}
	slices.Sort(offsets)
	return offsets, err
}

func (c *client) transact(command asking.Command) (any, error) {
	producer := c.transactional[command.By]
	if producer == nil {
		config := settings()
		config.Producer.Idempotent = true
		config.Producer.Transaction.ID = command.By
		config.Net.MaxOpenRequests = 1
		var err error
		if producer, err = sarama.NewSyncProducer(c.address, config); err != nil {
			return nil, err
		}
		c.transactional[command.By] = producer
	}
	if err := producer.BeginTxn(); err != nil {
		return nil, err
	}
	if err := producer.SendMessages(messages(command)); err != nil {
		return nil, err
	}
	if at := command.Offsets; at != nil {
		offsets := map[string][]*sarama.PartitionOffsetMetadata{
			at.Topic: {{Partition: at.Partition, Offset: at.Offset, LeaderEpoch: -1}},
		}
		if err := producer.AddOffsetsToTxn(offsets, at.Group); err != nil {
			return nil, err
		}
	}
	if command.Commits {
		return nil, producer.CommitTxn()
	}
	return nil, producer.AbortTxn()
}

func (c *client) read(command asking.Command) (any, error) {
	config := settings()
	if command.Committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer(c.address, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	part, err := consumer.ConsumePartition(command.Topic, command.Partition, command.Offset)
	if err != nil {
		return nil, err
	}
	defer part.Close()
	found := [][]any{}
	late := time.After(patience)
	for len(found) < command.Count {
		select {
		case message := <-part.Messages():
			headers := [][]any{}
			for _, header := range message.Headers {
				headers = append(headers, []any{string(header.Key), asking.Text(header.Value)})
			}
			found = append(found, []any{
				message.Offset, asking.Text(message.Key), asking.Text(message.Value), headers, message.Timestamp.UnixMilli(),
			})
		case <-late:
			return found, nil
		}
	}
	return found, nil
}

func (c *client) offset(command asking.Command) (any, error) {
	asker, err := sarama.NewClient(c.address, settings())
	if err != nil {
		return nil, err
	}
	defer asker.Close()
	return asker.GetOffset(command.Topic, command.Partition, command.Timestamp(sarama.OffsetOldest, sarama.OffsetNewest))
}

func (c *client) deleteRecords(command asking.Command) (any, error) {
	return nil, c.admin().DeleteRecords(command.Topic, map[int32]int64{command.Partition: command.Offset})
}

func (c *client) committed(command asking.Command) (any, error) {
	numbers := []int32{}
	for number := range command.Partitions {
		numbers = append(numbers, number)
	}
	answer, err := c.admin().ListConsumerGroupOffsets(command.Group, map[string][]int32{command.Topic: numbers})
	if err != nil {
		return nil, err
	}
	found := [][]int64{}
	for _, number := range numbers {
		found = append(found, []int64{int64(number), answer.GetBlock(command.Topic, number).Offset})
	}
	return found, nil
}

func (c *client) group(command asking.Command) (any, error) {
	found, err := c.admin().DescribeConsumerGroups([]string{command.Group})
	if err != nil {
		return nil, err
	}
	if found[0].Err != sarama.ErrNoError {
		return nil, found[0].Err
	}
	return map[string]any{"state": found[0].State, "members": len(found[0].Members), "assignor": found[0].Protocol}, nil
}

func (c *client) groups(asking.Command) (any, error) {
	found, err := c.admin().ListConsumerGroups()
	names := []string{}
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, err
}

func (c *client) deleteGroup(command asking.Command) (any, error) {
	return nil, c.admin().DeleteConsumerGroup(command.Group)
}

// member is what a group's session tells, and what it has read.
type member struct {
	group   sarama.ConsumerGroup
	read    chan *sarama.ConsumerMessage
	mutex   sync.Mutex
	session sarama.ConsumerGroupSession
	topic   string
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session = session
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session = nil
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		select {
		case m.read <- message:
		case <-session.Context().Done():
			return nil
		}
	}
	return nil
}

func (m *member) current() sarama.ConsumerGroupSession {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.session
}

func (c *client) join(command asking.Command) (any, error) {
	group, err := sarama.NewConsumerGroup(c.address, command.Group, settings())
	if err != nil {
		return nil, err
	}
	joined := &member{group: group, read: make(chan *sarama.ConsumerMessage), topic: command.Topic}
	c.member = joined
	go func() {
		for {
			err := group.Consume(context.Background(), []string{command.Topic}, joined)
			if errors.Is(err, sarama.ErrClosedConsumerGroup) {
				return
			}
		}
	}()
	return nil, nil
}

func (c *client) poll(command asking.Command) (any, error) {
	found := [][]any{}
	late := time.After(time.Duration(command.Ms) * time.Millisecond)
	for len(found) < max(command.Count, 1) {
		select {
		case message := <-c.member.read:
			if session := c.member.current(); session != nil {
				session.MarkMessage(message, "")
			}
			found = append(found, []any{message.Partition, message.Offset, asking.Text(message.Value)})
		case <-late:
			return found, nil
		}
	}
	return found, nil
}

func (c *client) assigned(asking.Command) (any, error) {
	if session := c.member.current(); session != nil {
		return len(session.Claims()[c.member.topic]), nil
	}
	return 0, nil
}

func (c *client) commit(asking.Command) (any, error) {
	if session := c.member.current(); session != nil {
		session.Commit()
	}
	return nil, nil
}

func (c *client) leave(asking.Command) (any, error) {
	return nil, c.member.group.Close()
}

func code(err error) any {
	var kafka sarama.KError
	var topic *sarama.TopicError
	var produced sarama.ProducerErrors
	switch {
	case errors.As(err, &topic):
		return int16(topic.Err)
	case errors.As(err, &produced):
		return code(produced[0].Err)
	case errors.As(err, &kafka):
		return int16(kafka)
	}
	return nil
}

func main() {
	c := &client{address: os.Args[1:2], transactional: map[string]sarama.SyncProducer{}}
	asking.Answer(map[string]func(asking.Command) (any, error){
		"create": c.create, "describe": c.describe, "produce": c.produce, "transact": c.transact, "read": c.read,
		"offset": c.offset, "delete_records": c.deleteRecords, "committed": c.committed, "group": c.group,
		"groups": c.groups, "delete_group": c.deleteGroup, "join": c.join, "poll": c.poll, "assigned": c.assigned,
		"commit": c.commit, "leave": c.leave,
	}, code)
}
