"""What brokers keep in `__consumer_offsets` and `__transaction_state`; for kstore.record.schema.parse_schemas.

A key's version is the type of the record, which both tables go by.
Source: Kafka's message definitions of the group and the transaction coordinator.
"""

GROUP_KEYS = """
OffsetCommitKey 0,1 0-1 -
  group string
  topic string
  partition int32
GroupMetadataKey 2 2 -
  group string
ConsumerGroupMetadataKey 3 3 -
  groupId string
ConsumerGroupPartitionMetadataKey 4 4 -
  groupId string
ConsumerGroupMemberMetadataKey 5 5 -
  groupId string
  memberId string
ConsumerGroupTargetAssignmentMetadataKey 6 6 -
  groupId string
ConsumerGroupTargetAssignmentMemberKey 7 7 -
  groupId string
  memberId string
ConsumerGroupCurrentMemberAssignmentKey 8 8 -
  groupId string
  memberId string
ShareGroupMemberMetadataKey 10 10 -
  groupId string
  memberId string
ShareGroupMetadataKey 11 11 -
  groupId string
ShareGroupTargetAssignmentMetadataKey 12 12 -
  groupId string
ShareGroupTargetAssignmentMemberKey 13 13 -
  groupId string
  memberId string
ShareGroupCurrentMemberAssignmentKey 14 14 -
  groupId string
  memberId string
ConsumerGroupRegularExpressionKey 16 16 -
  groupId string
  regularExpression string
"""

GROUP_VALUES = """
OffsetCommitValue 0,1 0-4 4+
  offset int64
  leaderEpoch int32 3+
  metadata string
  commitTimestamp int64
  expireTimestamp int64 1
  topicId uuid 4+ tag=0
GroupMetadataValue 2 0-4 4+
  protocolType string
  generation int32
  protocol string null=0+
  leader string null=0+
  currentStateTimestamp int64 2+
  members []struct
    memberId string
    groupInstanceId string 3+ null=3+
    clientId string
    clientHost string
    rebalanceTimeout int32 1+
    sessionTimeout int32
    subscription bytes
    assignment bytes
ConsumerGroupMetadataValue 3 0 0+
  epoch int32
  metadataHash int64 tag=0
ConsumerGroupPartitionMetadataValue 4 0 0+
  topics []struct
    topicId uuid
    topicName string
    numPartitions int32
    partitionMetadata []struct
      partition int32
      racks []string
ConsumerGroupMemberMetadataValue 5 0 0+
  instanceId string null=0+
  rackId string null=0+
  clientId string
  clientHost string
  subscribedTopicNames []string
  subscribedTopicRegex string null=0+
  rebalanceTimeoutMs int32
  serverAssignor string null=0+
  classicMemberMetadata struct null=0+ tag=0
    sessionTimeoutMs int32
    supportedProtocols []struct
      name string
      metadata bytes
ConsumerGroupTargetAssignmentMetadataValue 6 0 0+
  assignmentEpoch int32
ConsumerGroupTargetAssignmentMemberValue 7 0 0+
  topicPartitions []struct
    topicId uuid
    partitions []int32
ConsumerGroupCurrentMemberAssignmentValue 8 0 0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  assignedPartitions []struct
    topicId uuid
    partitions []int32
  partitionsPendingRevocation []struct
    topicId uuid
    partitions []int32
ShareGroupMemberMetadataValue 10 0 0+
  rackId string null=0+
  clientId string
  clientHost string
  subscribedTopicNames []string
ShareGroupMetadataValue 11 0 0+
  epoch int32
  metadataHash int64 tag=0
ShareGroupTargetAssignmentMetadataValue 12 0 0+
  assignmentEpoch int32
ShareGroupTargetAssignmentMemberValue 13 0 0+
  topicPartitions []struct
    topicId uuid
    partitions []int32
ShareGroupCurrentMemberAssignmentValue 14 0 0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  assignedPartitions []struct
    topicId uuid
    partitions []int32
ConsumerGroupRegularExpressionValue 16 0 0+
  topics []string
  version int64
  timestamp int64
"""

TRANSACTION_KEYS = """
TransactionLogKey 0 0 -
  transactionalId string
"""

TRANSACTION_VALUES = """
TransactionLogValue 0 0-1 1+
  producerId int64
  previousProducerId int64 1+ tag=0
  nextProducerId int64 1+ tag=1
  producerEpoch int16
  transactionTimeoutMs int32
  transactionStatus int8
  transactionPartitions []struct null=0+
    topic string
    partitionIds []int32
  transactionLastUpdateTimestampMs int64
  transactionStartTimestampMs int64
  clientTransactionVersion int16 1+ tag=2
"""

# What the members of a group of protocol type "consumer" say and are told.
CONSUMER_PROTOCOL = """
ConsumerProtocolSubscription 0 0-3 -
  topics []string
  userData bytes null=0+
  ownedPartitions []struct 1+
    topic string
    partitions []int32
  generationId int32 2+
  rackId string 3+ null=3+
ConsumerProtocolAssignment 1 0-3 -
  assignedPartitions []struct
    topic string
    partitions []int32
  userData bytes null=0+
"""
