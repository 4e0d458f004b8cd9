"""Schemas of the records in `__cluster_metadata` (controllers) and `__remote_log_metadata` (tiered storage).

Tables for kstore.wire.schema.parse_schemas. Source: Kafka's message definitions of both logs.
"""

METADATA_RECORDS = """
RegisterBrokerRecord 0 0-4 0+
  brokerId int32
  isMigratingZkBroker bool 2+
  incarnationId uuid
  brokerEpoch int64
  endPoints []struct
    name string
    host string
    port uint16
    securityProtocol int16
  features []struct
    name string
    minSupportedVersion int16
    maxSupportedVersion int16
  rack string null=0+
  fenced bool default=true
  inControlledShutdown bool 1+
  logDirs []uuid 3+ tag=0
  cordonedLogDirs []uuid 4+ null=4+ tag=1 default=null
UnregisterBrokerRecord 1 0 0+
  brokerId int32
  brokerEpoch int64
TopicRecord 2 0 0+
  name string
  topicId uuid
PartitionRecord 3 0-2 0+
  partitionId int32 default=-1
  topicId uuid
  replicas []int32
  isr []int32
  removingReplicas []int32
  addingReplicas []int32
  leader int32 default=-1
  leaderRecoveryState int8 tag=0
  leaderEpoch int32 default=-1
  partitionEpoch int32 default=-1
  directories []uuid 1+
  eligibleLeaderReplicas []int32 2+ null=2+ tag=1 default=null
  lastKnownElr []int32 2+ null=2+ tag=2 default=null
ConfigRecord 4 0 0+
  resourceType int8
  resourceName string
  name string
  value string null=0+
PartitionChangeRecord 5 0-2 0+
  partitionId int32 default=-1
  topicId uuid
  isr []int32 null=0+ tag=0 default=null
  leader int32 tag=1 default=-2
  replicas []int32 null=0+ tag=2 default=null
  removingReplicas []int32 null=0+ tag=3 default=null
  addingReplicas []int32 null=0+ tag=4 default=null
  leaderRecoveryState int8 tag=5 default=-1
  directories []uuid 1+ null=1+ tag=8 default=null
  eligibleLeaderReplicas []int32 2+ null=2+ tag=6 default=null
  lastKnownElr []int32 2+ null=2+ tag=7 default=null
FenceBrokerRecord 7 0 0+
  id int32
  epoch int64
UnfenceBrokerRecord 8 0 0+
  id int32
  epoch int64
RemoveTopicRecord 9 0 0+
  topicId uuid
DelegationTokenRecord 10 0 0+
  owner string
  requester string
  renewers []string
  issueTimestamp int64
  maxTimestamp int64
  expirationTimestamp int64
  tokenId string
UserScramCredentialRecord 11 0 0+
  name string
  mechanism int8
  salt bytes
  storedKey bytes
  serverKey bytes
  iterations int32
FeatureLevelRecord 12 0 0+
  name string
  featureLevel int16
ClientQuotaRecord 14 0 0+
  entity []struct
    entityType string
    entityName string null=0+
  key string
  value float64
  remove bool
ProducerIdsRecord 15 0 0+
  brokerId int32
  brokerEpoch int64 default=-1
  nextProducerId int64
BrokerRegistrationChangeRecord 17 0-3 0+
  brokerId int32
  brokerEpoch int64
  fenced int8 tag=0
  inControlledShutdown int8 1+ tag=1
  logDirs []uuid 2+ tag=2
  cordonedLogDirs []uuid 3+ null=3+ tag=3 default=null
AccessControlEntryRecord 18 0 0+
  id uuid
  resourceType int8
  resourceName string
  patternType int8
  principal string
  host string
  operation int8
  permissionType int8
RemoveAccessControlEntryRecord 19 0 0+
  id uuid
NoOpRecord 20 0 0+
ZkMigrationStateRecord 21 0 0+
  zkMigrationState int8
RemoveUserScramCredentialRecord 22 0 0+
  name string
  mechanism int8
BeginTransactionRecord 23 0 0+
  name string null=0+ tag=0 default=null
EndTransactionRecord 24 0 0+
AbortTransactionRecord 25 0 0+
  reason string null=0+ tag=0 default=null
RemoveDelegationTokenRecord 26 0 0+
  tokenId string
RegisterControllerRecord 27 0 0+
  controllerId int32
  incarnationId uuid
  zkMigrationReady bool
  endPoints []struct
    name string
    host string
    port uint16
    securityProtocol int16
  features []struct
    name string
    minSupportedVersion int16
    maxSupportedVersion int16
ClearElrRecord 28 0 0+
  topicName string
UnregisterControllerRecord 29 0 0+
  controllerId int32
"""

REMOTE_LOG_METADATA_RECORDS = """
RemoteLogSegmentMetadataRecord 0 0 0+
  remoteLogSegmentId struct
    topicIdPartition struct
      name string
      id uuid
      partition int32
    id uuid
  startOffset int64
  endOffset int64
  brokerId int32
  maxTimestampMs int64
  eventTimestampMs int64
  segmentLeaderEpochs []struct
    leaderEpoch int32
    offset int64
  segmentSizeInBytes int32
  customMetadata bytes null=0+ default=null
  remoteLogSegmentState int8
  txnIndexEmpty bool tag=0
RemoteLogSegmentMetadataUpdateRecord 1 0 0+
  remoteLogSegmentId struct
    topicIdPartition struct
      name string
      id uuid
      partition int32
    id uuid
  brokerId int32
  eventTimestampMs int64
  customMetadata bytes null=0+ default=null
  remoteLogSegmentState int8
RemotePartitionDeleteMetadataRecord 2 0 0+
  topicIdPartition struct
    name string
    id uuid
    partition int32
  brokerId int32
  eventTimestampMs int64
  remotePartitionDeleteState int8
RemoteLogSegmentMetadataSnapshotRecord 3 0 0+
  segmentId uuid
  startOffset int64
  endOffset int64
  brokerId int32
  maxTimestampMs int64
  eventTimestampMs int64
  segmentLeaderEpochs []struct
    leaderEpoch int32
    offset int64
  segmentSizeInBytes int32
  customMetadata bytes null=0+ default=null
  remoteLogSegmentState int8
  txnIndexEmpty bool tag=0
"""
