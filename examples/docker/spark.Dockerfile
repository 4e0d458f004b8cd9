# Spark with format("kstore"). docker build -t kstore-spark -f examples/docker/spark.Dockerfile .
# docker run --rm -v /var/lib/kafka:/kafka:ro kstore-spark /jobs/count_records.py /kafka
# docker run --rm -v /var/lib/kafka:/kafka:ro -v "$PWD":/own:ro kstore-spark --master 'local[4]' /own/job.py
FROM python:3.13-slim-bookworm AS build
# Debian keeps one version of a package only.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
COPY . /source
RUN pip wheel --no-cache-dir --wheel-dir /wheels '/source[spark]'

FROM python:3.13-slim-bookworm
# The version is that of the source.
# hadolint ignore=DL3008,DL3013
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps && rm -rf /var/lib/apt/lists/* \
    && pip install --no-cache-dir --no-index --find-links /wheels 'kstore[spark]' && useradd --uid 1000 --create-home spark
COPY examples/docker/count_records.py /jobs/
# Spark starts the Python that this names, and looks for sources with it.
ENV PYSPARK_PYTHON=/usr/local/bin/python3
WORKDIR /home/spark
USER 1000
ENTRYPOINT ["spark-submit"]
CMD ["/jobs/count_records.py", "/kafka"]
