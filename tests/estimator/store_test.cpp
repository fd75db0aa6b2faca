// Tests a store in a folder: its layout, whole files, and errors.
#include <gmock/gmock.h>
#include <hvd_test/errors.hpp>

#include <hvd/estimator/parquet_source.hpp>
#include <hvd/estimator/store.hpp>

#include "folder.hpp"

namespace hvd {
namespace {

using namespace test;  // NOLINT: a test
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

std::string text_of(const std::optional<Bytes>& bytes) {
  if (!bytes) return "nothing";
  return {reinterpret_cast<const char*>(bytes->data()), bytes->size()};
}

std::string refusal(const std::string& uri, StorageOptions options = {},
                    Errc code = Errc::invalid_argument) {
  const Error error =
      error_of([&] { (void)EstimatorStore::open(uri, {.storage_options = std::move(options)}); });
  EXPECT_EQ(error.code(), code) << error.what();
  return error.what();
}

class Store : public testing::Test {
 protected:
  Folder folder_;
  EstimatorStore store_ = EstimatorStore::open(folder_.path().string());
};

TEST_F(Store, HasHorovodsLayout) {
  EXPECT_EQ(store_.train_data("7"), "intermediate_train_data.7");
  EXPECT_EQ(store_.val_data("7"), "intermediate_val_data.7");
  EXPECT_EQ(store_.run("r1"), "runs/r1");
  EXPECT_EQ(store_.checkpoint("r1"), "runs/r1/checkpoint");
  EXPECT_EQ(store_.logs("r1"), "runs/r1/logs");
  EXPECT_EQ(store_.uri_of(store_.logs("r1")), folder_ / "runs/r1/logs");
}

TEST_F(Store, ChecksIdsAndPaths) {
  for (const std::string& id :
       {std::string(), std::string("."), std::string(".."), std::string("a/b"), std::string("../x"),
        std::string("a\nb"), std::string("a\0b", 3), std::string(201, 'x')}) {
    EXPECT_EQ(error_of([&] { (void)store_.run(id); }).code(), Errc::invalid_argument) << id;
    EXPECT_EQ(error_of([&] { (void)store_.train_data(id); }).code(), Errc::invalid_argument);
  }
  for (const char* path : {"", "/etc/passwd", "a/../../x", "..", "a//b", "a/"}) {
    EXPECT_EQ(error_of([&] { (void)store_.read(path); }).code(), Errc::invalid_argument) << path;
    EXPECT_EQ(error_of([&] { store_.write(path, "x"); }).code(), Errc::invalid_argument) << path;
    EXPECT_EQ(error_of([&] { store_.remove(path); }).code(), Errc::invalid_argument) << path;
  }
}

TEST_F(Store, WritesReadsListsAndRemoves) {
  EXPECT_EQ(text_of(store_.read("runs/a/checkpoint/model.hvd")), "nothing");
  EXPECT_THAT(store_.list("runs/a"), IsEmpty());
  EXPECT_FALSE(store_.exists("runs"));

  store_.write("runs/a/checkpoint/model.hvd", "one");
  store_.write("runs/a/checkpoint/model.hvd", "two");
  store_.write("runs/a/logs/history.json", std::string());
  EXPECT_EQ(text_of(store_.read("runs/a/checkpoint/model.hvd")), "two");
  EXPECT_EQ(text_of(store_.read("runs/a/logs/history.json")), "");
  EXPECT_THAT(store_.list("runs/a"), ElementsAre("checkpoint", "logs"));
  EXPECT_THAT(store_.list("runs/a/checkpoint"), ElementsAre("model.hvd"));  // nothing beside it
  EXPECT_THAT(store_.list(""), ElementsAre("runs"));
  EXPECT_TRUE(store_.exists("runs/a"));
  EXPECT_EQ(content_of(folder_ / "runs/a/checkpoint/model.hvd"), "two");
  EXPECT_EQ(error_of([&] { (void)store_.read("runs/a"); }).code(), Errc::resource);

  store_.remove("runs/a/logs/history.json");
  EXPECT_FALSE(store_.exists("runs/a/logs/history.json"));
  store_.remove("runs/a");
  EXPECT_FALSE(store_.exists("runs/a"));
  store_.remove("runs/a");
}

TEST_F(Store, IsOpenedByPathOrUri) {
  store_.write("x", "here");
  for (const std::string& uri :
       {folder_.path().string() + "/", "file://" + folder_.path().string(),
        "file://" + folder_.path().string() + "/", "file:" + folder_.path().string(),
        "file://localhost" + folder_.path().string(), fs::relative(folder_.path()).string()}) {
    EXPECT_EQ(text_of(EstimatorStore::open(uri).read("x")), "here") << uri;
  }
  EXPECT_EQ(EstimatorStore::open("some/where").uri(), (fs::current_path() / "some/where").string());
}

TEST_F(Store, GivesUrisThatLeadBack) {
  const auto store = EstimatorStore::open("file://" + folder_.path().string());
  store.write("runs/a b%20c/x", "here");
  const std::string uri = store.uri_of("runs/a b%20c");
  EXPECT_EQ(uri, "file://" + (folder_ / "runs/a%20b%2520c"));
  EXPECT_EQ(text_of(EstimatorStore::open(uri).read("x")), "here");
  EXPECT_EQ(text_of(EstimatorStore::open(store_.uri_of("runs/a b%20c")).read("x")), "here");
}

TEST_F(Store, FilesHaveTheNamesThatTheirUrisEncode) {
  const std::string path = folder_ / "a b%20c.parquet";
  const std::string encoded = folder_ / "a%20b%2520c.parquet";
  for (const std::string& uri : {path, "file://" + encoded, "file:" + encoded}) {
    write_parquet(uri, {"x"}, {torch::ones({3})});
    EXPECT_THAT(store_.list(""), ElementsAre("a b%20c.parquet")) << uri;
    EXPECT_EQ(ParquetSource::open(uri).rows(), 3);
    store_.remove("a b%20c.parquet");
  }
}

TEST_F(Store, RefusesUnknownSchemesAndOptions) {
  EXPECT_THAT(refusal("ftp://host/x"),
              HasSubstr("ftp://host/x: unknown scheme 'ftp' (known: a path"));
  EXPECT_THAT(refusal(""), HasSubstr("empty path"));
  EXPECT_THAT(refusal("file://elsewhere/x"), HasSubstr("names no host"));
  EXPECT_THAT(refusal("/tmp", {{"key", "k"}}),
              HasSubstr("storage options of a local folder: 'key' was given, and none is taken"));
  EXPECT_THAT(
      refusal("s3://bucket/x", {{"region", "r"}, {"acces_key", "k"}}),
      HasSubstr("storage options of s3://: 'acces_key' is unknown (known: region, scheme, "));
  EXPECT_THAT(refusal("abfs://c@a.dfs.core.windows.net/x", {{"key", "k"}}),
              HasSubstr("'key' is unknown"));
  EXPECT_THAT(refusal("gs://bucket/x", {{"key", "k"}}), HasSubstr("'key' is unknown"));
  EXPECT_THAT(refusal("hdfs://host:1/x", {{"port", "many"}}),
              HasSubstr("'port' is a number above 0"));
}

TEST_F(Store, RefusesCredentialsThatDoNotFit) {
  const StorageOptions here = {{"region", "r"}};
  const auto with = [&](StorageOptions more) {
    more.insert(here.begin(), here.end());
    return refusal("s3://bucket/x", more);
  };
  EXPECT_THAT(with({{"key", "k"}}), HasSubstr("'secret' is missing; key, secret go together"));
  EXPECT_THAT(with({{"key", "k"}, {"secret", "s"}, {"anon", "true"}}), HasSubstr("exclude"));
  EXPECT_THAT(with({{"token", "t"}}), HasSubstr("'token' goes with"));
  EXPECT_THAT(with({{"anon", "perhaps"}}), HasSubstr("'anon' is true or false"));
  EXPECT_THAT(with({{"endpoint_url", "localhost:9"}}), HasSubstr("'endpoint_url' is http://"));
  EXPECT_THAT(with({{"scheme", "ftp"}}), HasSubstr("'scheme' is http or https"));
  EXPECT_THAT(
      refusal("abfs://c@a.dfs.core.windows.net/x", {{"account_key", "aw=="}, {"anon", "1"}}),
      HasSubstr("give one of 'account_key'"));
  EXPECT_THAT(refusal("s3://bucket/x?region=a", here),
              HasSubstr("'region' is in the URI and among"));

  const std::string leak = refusal("s3://name:verysecret@bucket/x", here);
  EXPECT_THAT(leak, HasSubstr("credentials do not belong into a URI"));
  EXPECT_THAT(leak, testing::Not(HasSubstr("verysecret")));
}

TEST_F(Store, RefusesSecretsInTheQueryAndDoesNotRepeatThem) {
  for (const std::string folder : {"s3://place/x?", "abfs://place/x?enable_tls=true&"}) {
    for (const std::string name : {"sig", "client_secret", "account_key", "s%69g", "secret"}) {
      const std::string leak = refusal(folder + name + "=verysecret");
      EXPECT_THAT(leak, HasSubstr("://place/x: '" + name + "' is not taken in a URI"));
      EXPECT_THAT(leak, testing::Not(HasSubstr("verysecret")));
    }
  }
}

TEST_F(Store, OfHdfsWithoutItsLibraryIsANamedError) {
  const Error error = error_of([] { (void)EstimatorStore::open("hdfs://localhost:1/x"); });
  EXPECT_NE(error.code(), Errc::internal);
  EXPECT_THAT(error.what(), HasSubstr("hdfs://localhost:1/x: "));
}

}  // namespace
}  // namespace hvd
