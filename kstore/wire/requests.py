"""The requests of Kafka's protocol and their header, as tables for kstore.wire.schema.

Written by tests/interop/definitions.py from the definitions of Kafka 4.1: those versions that its broker offers.
"""

REQUESTS = """
RequestHeader - 1-2 2+
  requestApiKey int16
  requestApiVersion int16
  correlationId int32
  clientId string null=1+ inflexible
ProduceRequest 0 3-13 9+
  transactionalId string null=3+ default=null
  acks int16
  timeoutMs int32
  topicData []TopicProduceData
    name string 3-12 ignorable
    topicId uuid 13+ ignorable
    partitionData []PartitionProduceData
      index int32
      records records null=3+
FetchRequest 1 4-18 12+
  clusterId string 12+ null=12+ tag=0 default=null ignorable
  replicaId int32 4-14 default=-1
  replicaState ReplicaState 15+ tag=1
    replicaId int32 default=-1
    replicaEpoch int64 default=-1
  maxWaitMs int32
  minBytes int32
  maxBytes int32 default=2147483647
  isolationLevel int8
  sessionId int32 7+ ignorable
  sessionEpoch int32 7+ default=-1 ignorable
  topics []FetchTopic
    topic string 4-12 ignorable
    topicId uuid 13+ ignorable
    partitions []FetchPartition
      partition int32
      currentLeaderEpoch int32 9+ default=-1 ignorable
      fetchOffset int64
      lastFetchedEpoch int32 12+ default=-1
      logStartOffset int64 5+ default=-1 ignorable
      partitionMaxBytes int32
      replicaDirectoryId uuid 17+ tag=0 ignorable
      highWatermark int64 18+ tag=1 default=9223372036854775807 ignorable
  forgottenTopicsData []ForgottenTopic 7+
    topic string 7-12 ignorable
    topicId uuid 13+ ignorable
    partitions []int32
  rackId string 11+ ignorable
ListOffsetsRequest 2 1-10 6+
  replicaId int32
  isolationLevel int8 2+
  topics []ListOffsetsTopic
    name string
    partitions []ListOffsetsPartition
      partitionIndex int32
      currentLeaderEpoch int32 4+ default=-1 ignorable
      timestamp int64
  timeoutMs int32 10+ ignorable
MetadataRequest 3 0-13 9+
  topics []MetadataRequestTopic null=1+
    topicId uuid 10+ ignorable
    name string null=10+
  allowAutoTopicCreation bool 4+ default=true
  includeClusterAuthorizedOperations bool 8-10
  includeTopicAuthorizedOperations bool 8+
OffsetCommitRequest 8 2-9 8+
  groupId string
  generationIdOrMemberEpoch int32 default=-1
  memberId string
  groupInstanceId string 7+ null=7+ default=null
  retentionTimeMs int64 2-4 default=-1 ignorable
  topics []OffsetCommitRequestTopic
    name string
    partitions []OffsetCommitRequestPartition
      partitionIndex int32
      committedOffset int64
      committedLeaderEpoch int32 6+ default=-1 ignorable
      committedMetadata string null=2+
OffsetFetchRequest 9 1-9 6+
  groupId string 1-7
  topics []OffsetFetchRequestTopic 1-7 null=2-7
    name string
    partitionIndexes []int32
  groups []OffsetFetchRequestGroup 8+
    groupId string
    memberId string 9+ null=9+ default=null ignorable
    memberEpoch int32 9+ default=-1 ignorable
    topics []OffsetFetchRequestTopics null=8+
      name string
      partitionIndexes []int32
  requireStable bool 7+
FindCoordinatorRequest 10 0-6 3+
  key string 0-3
  keyType int8 1+
  coordinatorKeys []string 4+
JoinGroupRequest 11 0-9 6+
  groupId string
  sessionTimeoutMs int32
  rebalanceTimeoutMs int32 1+ default=-1 ignorable
  memberId string
  groupInstanceId string 5+ null=5+ default=null
  protocolType string
  protocols []JoinGroupRequestProtocol
    name string
    metadata bytes
  reason string 8+ null=8+ default=null ignorable
HeartbeatRequest 12 0-4 4+
  groupId string
  generationId int32
  memberId string
  groupInstanceId string 3+ null=3+ default=null
LeaveGroupRequest 13 0-5 4+
  groupId string
  memberId string 0-2
  members []MemberIdentity 3+
    memberId string
    groupInstanceId string null=3+ default=null
    reason string 5+ null=5+ default=null ignorable
SyncGroupRequest 14 0-5 4+
  groupId string
  generationId int32
  memberId string
  groupInstanceId string 3+ null=3+ default=null
  protocolType string 5+ null=5+ default=null ignorable
  protocolName string 5+ null=5+ default=null ignorable
  assignments []SyncGroupRequestAssignment
    memberId string
    assignment bytes
DescribeGroupsRequest 15 0-6 5+
  groups []string
  includeAuthorizedOperations bool 3+
ListGroupsRequest 16 0-5 3+
  statesFilter []string 4+
  typesFilter []string 5+
SaslHandshakeRequest 17 0-1 -
  mechanism string
ApiVersionsRequest 18 0-4 3+
  clientSoftwareName string 3+ ignorable
  clientSoftwareVersion string 3+ ignorable
CreateTopicsRequest 19 2-7 5+
  topics []CreatableTopic
    name string
    numPartitions int32
    replicationFactor int16
    assignments []CreatableReplicaAssignment
      partitionIndex int32
      brokerIds []int32
    configs []CreatableTopicConfig
      name string
      value string null=2+
  timeoutMs int32 default=60000
  validateOnly bool
DeleteTopicsRequest 20 1-6 4+
  topics []DeleteTopicState 6+
    name string null=6+ default=null
    topicId uuid
  topicNames []string 1-5 ignorable
  timeoutMs int32
DeleteRecordsRequest 21 0-2 2+
  topics []DeleteRecordsTopic
    name string
    partitions []DeleteRecordsPartition
      partitionIndex int32
      offset int64
  timeoutMs int32
InitProducerIdRequest 22 0-5 2+
  transactionalId string null=0+
  transactionTimeoutMs int32
  producerId int64 3+ default=-1
  producerEpoch int16 3+ default=-1
OffsetForLeaderEpochRequest 23 2-4 4+
  replicaId int32 3+ default=-2 ignorable
  topics []OffsetForLeaderTopic
    topic string
    partitions []OffsetForLeaderPartition
      partition int32
      currentLeaderEpoch int32 default=-1
      leaderEpoch int32
AddPartitionsToTxnRequest 24 0-5 3+
  transactions []AddPartitionsToTxnTransaction 4+
    transactionalId string
    producerId int64
    producerEpoch int16
    verifyOnly bool
    topics []AddPartitionsToTxnTopic
      name string
      partitions []int32
  v3AndBelowTransactionalId string 0-3
  v3AndBelowProducerId int64 0-3
  v3AndBelowProducerEpoch int16 0-3
  v3AndBelowTopics []AddPartitionsToTxnTopic 0-3
    name string
    partitions []int32
AddOffsetsToTxnRequest 25 0-4 3+
  transactionalId string
  producerId int64
  producerEpoch int16
  groupId string
EndTxnRequest 26 0-5 3+
  transactionalId string
  producerId int64
  producerEpoch int16
  committed bool
TxnOffsetCommitRequest 28 0-5 3+
  transactionalId string
  groupId string
  producerId int64
  producerEpoch int16
  generationId int32 3+ default=-1
  memberId string 3+
  groupInstanceId string 3+ null=3+ default=null
  topics []TxnOffsetCommitRequestTopic
    name string
    partitions []TxnOffsetCommitRequestPartition
      partitionIndex int32
      committedOffset int64
      committedLeaderEpoch int32 2+ default=-1 ignorable
      committedMetadata string null=0+
DescribeAclsRequest 29 1-3 2+
  resourceTypeFilter int8
  resourceNameFilter string null=1+
  patternTypeFilter int8 default=3
  principalFilter string null=1+
  hostFilter string null=1+
  operation int8
  permissionType int8
CreateAclsRequest 30 1-3 2+
  creations []AclCreation
    resourceType int8
    resourceName string
    resourcePatternType int8 default=3
    principal string
    host string
    operation int8
    permissionType int8
DeleteAclsRequest 31 1-3 2+
  filters []DeleteAclsFilter
    resourceTypeFilter int8
    resourceNameFilter string null=1+
    patternTypeFilter int8 default=3
    principalFilter string null=1+
    hostFilter string null=1+
    operation int8
    permissionType int8
DescribeConfigsRequest 32 1-4 4+
  resources []DescribeConfigsResource
    resourceType int8
    resourceName string
    configurationKeys []string null=1+
  includeSynonyms bool
  includeDocumentation bool 3+
AlterConfigsRequest 33 0-2 2+
  resources []AlterConfigsResource
    resourceType int8
    resourceName string
    configs []AlterableConfig
      name string
      value string null=0+
  validateOnly bool
DescribeLogDirsRequest 35 1-4 2+
  topics []DescribableLogDirTopic null=1+
    topic string
    partitions []int32
SaslAuthenticateRequest 36 0-2 2+
  authBytes bytes
CreatePartitionsRequest 37 0-3 2+
  topics []CreatePartitionsTopic
    name string
    count int32
    assignments []CreatePartitionsAssignment null=0+
      brokerIds []int32
  timeoutMs int32
  validateOnly bool
DeleteGroupsRequest 42 0-2 2+
  groupsNames []string
IncrementalAlterConfigsRequest 44 0-1 1+
  resources []AlterConfigsResource
    resourceType int8
    resourceName string
    configs []AlterableConfig
      name string
      configOperation int8
      value string null=0+
  validateOnly bool
OffsetDeleteRequest 47 0 -
  groupId string
  topics []OffsetDeleteRequestTopic
    name string
    partitions []OffsetDeleteRequestPartition
      partitionIndex int32
DescribeClusterRequest 60 0-2 0+
  includeClusterAuthorizedOperations bool
  endpointType int8 1+ default=1
  includeFencedBrokers bool 2+
DescribeProducersRequest 61 0 0+
  topics []TopicRequest
    name string
    partitionIndexes []int32
DescribeTransactionsRequest 65 0 0+
  transactionalIds []string
ListTransactionsRequest 66 0-2 0+
  stateFilters []string
  producerIdFilters []int64
  durationFilter int64 1+ default=-1
  transactionalIdPattern string 2+ null=2+ default=null
ConsumerGroupHeartbeatRequest 68 0-1 0+
  groupId string
  memberId string
  memberEpoch int32
  instanceId string null=0+ default=null
  rackId string null=0+ default=null
  rebalanceTimeoutMs int32 default=-1
  subscribedTopicNames []string null=0+ default=null
  subscribedTopicRegex string 1+ null=1+ default=null
  serverAssignor string null=0+ default=null
  topicPartitions []TopicPartitions null=0+ default=null
    topicId uuid
    partitions []int32
ConsumerGroupDescribeRequest 69 0-1 0+
  groupIds []string
  includeAuthorizedOperations bool
ListConfigResourcesRequest 74 0-1 0+
  resourceTypes []int8 1+
DescribeTopicPartitionsRequest 75 0 0+
  topics []TopicRequest
    name string
  responsePartitionLimit int32 default=2000
  cursor Cursor null=0+ default=null
    topicName string
    partitionIndex int32
"""
