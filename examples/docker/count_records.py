"""spark-submit count_records.py ROOT: print how many records each topic of a directory of Kafka's files has."""

import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("count records").getOrCreate()
records = spark.read.format("kstore").load(sys.argv[1])
for row in records.groupBy("topic").count().orderBy("topic").collect():
    print(row["topic"], row["count"])
spark.stop()
