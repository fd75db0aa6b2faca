// Tests a store, its data and their readers with the S3 server of the moto package on this machine.
#include <numeric>

#include <gmock/gmock.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/process.hpp>

#include <hvd/estimator/batch_reader.hpp>

#include "folder.hpp"

namespace hvd {
namespace {

using namespace test;  // NOLINT: a test
using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Takes a free port, creates a bucket and prints the port; ends when its standard input ends.
constexpr const char* kServer = R"(
import os, threading, urllib.request
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
port = server._server.server_port
urllib.request.urlopen(urllib.request.Request(
    f"http://127.0.0.1:{port}/bucket", method="PUT",
    headers={"Authorization": "AWS4-HMAC-SHA256 Credential=k/20200101/us-east-1/s3/aws4_request, "
                              "SignedHeaders=host, Signature=x"}), timeout=30)
print("port", port, flush=True)
threading.Event().wait()
)";

class StoreOnS3 : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(HVD_TEST_S3_PYTHON)) {
      GTEST_SKIP() << "needs an S3 server (scripts/install_deps --tests)";
    }
    ProcessOptions options;
    options.arguments = {HVD_TEST_S3_PYTHON, "-c", kServer};
    for (const char* name : {"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"}) {
      options.environment[name] = std::nullopt;
    }
    server_ = std::make_unique<Process>(options);
    server_->wait_for_out("\n", in(60s));
    port_ = server_->out().substr(5, server_->out().find('\n') - 5);
    options_ = {{"key", "k"},
                {"secret", "s"},
                {"region", "us-east-1"},
                {"endpoint_url", "http://127.0.0.1:" + port_}};
  }

  [[nodiscard]] EstimatorStore open(const std::string& uri) const {
    return EstimatorStore::open(uri, {.storage_options = options_});
  }

  std::unique_ptr<Process> server_;
  std::string port_;
  StorageOptions options_;
};

TEST_F(StoreOnS3, KeepsWhatWasWritten) {
  const auto store = open("s3://bucket/some/prefix/");
  EXPECT_FALSE(store.read("runs/a/checkpoint/model.hvd"));
  EXPECT_THAT(store.list("runs"), IsEmpty());
  store.write("runs/a/checkpoint/model.hvd", "one");
  store.write("runs/a/checkpoint/model.hvd", std::string(6'000'000, 'x'));  // in several parts
  store.write("runs/a/logs/history.json", "{}");
  EXPECT_EQ(store.read("runs/a/checkpoint/model.hvd").value().size(), 6'000'000u);
  EXPECT_THAT(store.list("runs/a"), ElementsAre("checkpoint", "logs"));
  EXPECT_TRUE(store.exists("runs/a"));
  EXPECT_EQ(store.uri_of("runs/a b"), "s3://bucket/some/prefix/runs/a%20b");
  store.write("runs/a b/x", "here");
  EXPECT_TRUE(open(store.uri_of("runs/a b")).read("x").has_value());
  EXPECT_TRUE(open("s3://bucket").exists("some/prefix/runs/a b/x"));
  store.remove("runs/a");
  EXPECT_FALSE(store.exists("runs/a/logs/history.json"));

  // The same options are in the URI, except the credentials.
  StorageOptions rest = {{"key", "k"}, {"secret", "s"}};
  const std::string query = "?region=us-east-1&scheme=http&endpoint_override=127.0.0.1:" + port_;
  const auto by_uri =
      EstimatorStore::open("s3://bucket/some/prefix" + query, {.storage_options = rest});
  EXPECT_TRUE(by_uri.read("runs/a b/x").has_value());
  EXPECT_EQ(by_uri.uri_of("runs"), "s3://bucket/some/prefix/runs" + query);
}

TEST_F(StoreOnS3, HoldsDataThatRanksRead) {
  const auto store = open("s3://bucket/data");
  for (const char* name : {"part-0.parquet", "part-1.parquet"}) {
    const std::int64_t first = name[5] == '0' ? 0 : 600;
    const torch::Tensor row = torch::arange(first, first + 600);
    write_parquet(store.uri_of(store.train_data("7") + "/" + name), {"x", "row"},
                  {torch::rand({600, 4}), row},
                  {.rows_per_group = 250, .storage_options = options_});
  }
  store.write(store.train_data("7") + "/_SUCCESS", std::string());
  const auto source = ParquetSource::open(store.uri_of(store.train_data("7")), options_);
  EXPECT_THAT(source.files(),
              ElementsAre("s3://bucket/data/intermediate_train_data.7/part-0.parquet",
                          "s3://bucket/data/intermediate_train_data.7/part-1.parquet"));
  std::vector<int> seen(1200);
  for (int rank = 0; rank < 3; ++rank) {
    BatchReader reader(source, {.features = {"x"}, .labels = {"row"}}, Selection::all(source),
                       {.rank = rank, .size = 3});
    while (const auto batch = reader.next()) {
      for (std::int64_t i = 0; i < batch->rows; ++i) {
        ++seen.at(static_cast<std::size_t>(batch->labels[0][i].item<std::int64_t>()));
      }
    }
  }
  EXPECT_THAT(seen, testing::Each(1));

  store.remove(store.train_data("7") + "/part-1.parquet");
  const Error error = error_of([&] {
    BatchReader reader(source, {.features = {"x"}}, Selection::all(source), {});
    while (reader.next()) continue;
  });
  EXPECT_EQ(error.code(), Errc::resource);
  EXPECT_THAT(error.what(), HasSubstr("part-1.parquet"));
}

TEST_F(StoreOnS3, NamesWhatIsNotThere) {
  const Error bucket = error_of([&] { open("s3://absent/x").write("a", "b"); });
  EXPECT_EQ(bucket.code(), Errc::resource);
  EXPECT_THAT(bucket.what(), HasSubstr("s3://absent/x/a"));
  EXPECT_EQ(error_of([&] { (void)ParquetSource::open("s3://bucket/none", options_); }).code(),
            Errc::resource);

  server_->signal(SIGKILL);
  (void)server_->wait(in(20s));
  const Error gone = error_of([&] { open("s3://bucket/x").write("a", "b"); });
  EXPECT_EQ(gone.code(), Errc::resource);
  EXPECT_THAT(gone.what(), HasSubstr("s3://bucket/x/a"));
}

}  // namespace
}  // namespace hvd
