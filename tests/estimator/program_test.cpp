// Tests whole processes: jobs under hvdrun, processes that a fit starts, and estimator_main.
#include <limits>

#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <hvd_test/process.hpp>
#include <nlohmann/json.hpp>

#include "fit_data.hpp"

namespace hvd::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

ProcessResult run(std::vector<std::string> arguments,
                  std::map<std::string, std::optional<std::string>> environment = {},
                  std::string input = {}) {
  environment["OMP_NUM_THREADS"] = "1";
  ProcessOptions options;
  options.arguments = std::move(arguments);
  options.environment = std::move(environment);
  options.input = std::move(input);
  return run_process(std::move(options), in(60s));
}

/// Returns the text after the last "name " in the output.
std::string value_in(const std::string& out, const std::string& name) {
  const std::size_t at = out.rfind(name + " ");
  if (at == std::string::npos) return {};
  const std::size_t begin = at + name.size() + 1;
  return out.substr(begin, out.find_first_of(" \n", begin) - begin);
}

TEST(EstimatorProgramTest, UnderHvdrunAResumedRunWithDropoutHasTheSameBits) {
  const Folder whole;
  const Folder parts;
  static_cast<void>(make_rows(whole, 43));
  static_cast<void>(make_rows(parts, 43));
  const auto job = [](const Folder& folder, const char* epochs) {
    const ProcessResult result =
        run({HVDRUN, "-np", "2", PROGRAM, "job", folder.path().string(), epochs});
    EXPECT_EQ(result.exit_code(), 0) << result.out << result.err;
    return result.out;
  };
  const std::string uninterrupted = job(whole, "3");
  EXPECT_THAT(uninterrupted, HasSubstr("epoch 3/3"));
  static_cast<void>(job(parts, "1"));
  const std::string resumed = job(parts, "3");
  EXPECT_EQ(value_in(resumed, "resumed"), "1");
  EXPECT_EQ(value_in(resumed, "ranks"), "2");
  EXPECT_EQ(value_in(resumed, "digest"), value_in(uninterrupted, "digest"));
  EXPECT_NE(value_in(resumed, "digest"), "");
}

TEST(EstimatorProgramTest, OutsideOfAJobItStartsItsRanks) {
  const Folder folder;
  static_cast<void>(make_rows(folder, 24));
  const ProcessResult result = run({PROGRAM, "spawn", folder.path().string(), "2", "2"});
  ASSERT_EQ(result.exit_code(), 0) << result.out << result.err;
  EXPECT_EQ(value_in(result.out, "ranks"), "2");
  EXPECT_EQ(value_in(result.out, "rate"), "0.20000000000000001");
  // The first call's lines went to the file, with time and rank; the second's to our own output.
  const std::string lines = content_of(folder / "out.txt");
  EXPECT_THAT(lines, testing::ContainsRegex("^20[0-9-]+ [0-9:.]+ \\[0\\]<stdout>:"));
  EXPECT_THAT(lines, HasSubstr("epoch 2/2"));
  EXPECT_THAT(result.out, AllOf(HasSubstr("run again"), testing::Not(HasSubstr("run spawned"))));
  const Model model = Model::load(
      folder / "store/runs/spawned/model.hvd",
      torch::nn::Sequential(torch::nn::Linear(kFeatures, 16), torch::nn::Dropout(0.5),
                            torch::nn::BatchNorm1d(16), torch::nn::Linear(16, kClasses)));
  EXPECT_EQ(model.history().epochs.size(), 2);
}

TEST(EstimatorProgramTest, MoreProcessesThanTheMachineHasSlotsAreRefused) {
  const Folder folder;
  static_cast<void>(make_rows(folder, 8));
  const ProcessResult result = run({PROGRAM, "spawn", folder.path().string(), "3", "2"});
  EXPECT_EQ(result.exit_code(), 1);
  EXPECT_THAT(result.err, HasSubstr("num_proc: 3 processes, and runner.slots is 2"));
  EXPECT_THAT(run({PROGRAM, "spawn", folder.path().string(), "60000"}).err,
              HasSubstr("num_proc: 60000 processes, and this process may use"));
}

json request_for(const Folder& folder) {
  return {{"store", folder / "store"},
          {"train_data", folder / "train"},
          {"val_data", nullptr},
          {"feature_cols", {"features"}},
          {"label_cols", {"label"}},
          {"epochs", 2},
          {"validation", "held"},
          {"run_id", "r"},
          {"verbose", 2},
          {"storage_options", json::object()}};
}

/// `program fit` with a descriptor for its result.
struct Fitted {
  ProcessResult process;
  json result;
};
Fitted fit(const json& request, std::vector<std::string> arguments = {}) {
  const Folder folder;
  write_content(folder / "result", "");
  const UniqueFd file(::open((folder / "result").c_str(), O_RDWR | O_CLOEXEC));
  ProcessOptions options;
  options.arguments = {PROGRAM, "fit"};
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  options.environment = {{"OMP_NUM_THREADS", "1"},
                         {"HVD_ESTIMATOR", request.dump()},
                         {"HVD_RESULT_FD", std::to_string(file.get())}};
  options.inherited = {file.get()};
  Fitted fitted{run_process(std::move(options), in(60s)), {}};
  const std::string written = content_of(folder / "result");
  if (!written.empty()) fitted.result = json::parse(written.substr(1), nullptr, false);
  return fitted;
}

std::string stream_of(const std::vector<torch::Tensor>& batches) {
  const auto schema = arrow::schema({arrow::field("features", arrow::list(arrow::float32()))});
  const auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
  const auto writer = arrow::ipc::MakeStreamWriter(sink, schema).ValueOrDie();
  for (const torch::Tensor& rows : batches) {
    const auto values = std::make_shared<arrow::FloatBuilder>();
    arrow::ListBuilder lists(arrow::default_memory_pool(), values);
    for (std::int64_t row = 0; row < rows.size(0); ++row) {
      EXPECT_TRUE(lists.Append().ok());
      EXPECT_TRUE(values->AppendValues(rows[row].const_data_ptr<float>(), rows.size(1)).ok());
    }
    const auto array = lists.Finish().ValueOrDie();
    EXPECT_TRUE(
        writer->WriteRecordBatch(*arrow::RecordBatch::Make(schema, rows.size(0), {array})).ok());
  }
  EXPECT_TRUE(writer->Close().ok());
  return sink->Finish().ValueOrDie()->ToString();
}

std::shared_ptr<arrow::RecordBatchReader> reader_of(const std::string& bytes) {
  const std::shared_ptr<arrow::io::InputStream> source = arrow::io::BufferReader::FromString(bytes);
  return arrow::ipc::RecordBatchStreamReader::Open(source).ValueOrDie();
}

TEST(EstimatorMainTest, FitsDescribesAndTransforms) {
  const Folder folder;
  static_cast<void>(make_rows(folder, 24));
  const Fitted fitted = fit(request_for(folder));
  ASSERT_EQ(fitted.process.exit_code(), 0) << fitted.process.out << fitted.process.err;
  EXPECT_EQ(fitted.result.at("run_id"), "r");
  EXPECT_EQ(fitted.result.at("model"), folder / "store/runs/r/model.hvd");
  EXPECT_EQ(fitted.result.at("learning_rate"), 0.1);
  EXPECT_EQ(fitted.result.at("ranks"), 1);
  EXPECT_EQ(fitted.result.at("resumed_epochs"), 0);
  EXPECT_EQ(fitted.result.at("history").size(), 2);
  EXPECT_EQ(fitted.result.at("history")[1].at("validation").at("rows"), 6);
  EXPECT_EQ(fit(request_for(folder)).result.at("resumed_epochs"), 2);

  const std::string model = fitted.result.at("model").get<std::string>();
  const ProcessResult columns = run({PROGRAM, "columns", "--model", model, "noise"});
  ASSERT_EQ(columns.exit_code(), 0) << columns.err;
  const json described = json::parse(columns.out);
  EXPECT_EQ(described.at("feature_cols"), json({"features"}));
  EXPECT_EQ(described.at("label_cols"), json({"label"}));
  EXPECT_EQ(described.at("output_cols"), json({"prediction"}));
  EXPECT_EQ(described.at("output_types"), json({"array<float>"}));
  EXPECT_THAT(columns.err, HasSubstr("rest noise"));

  const std::vector<torch::Tensor> batches = {
      normal({5, kFeatures}, 1), torch::empty({0, kFeatures}), normal({1, kFeatures}, 2)};
  const ProcessResult scored =
      run({PROGRAM, "transform", "--model=" + model, "noise"}, {}, stream_of(batches));
  ASSERT_EQ(scored.exit_code(), 0) << scored.err;
  const auto reader = reader_of(scored.out);
  for (const torch::Tensor& batch : batches) {
    const auto answer = reader->Next().ValueOrDie();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->num_rows(), batch.size(0));
    EXPECT_EQ(answer->schema()->field_names(), std::vector<std::string>{"prediction"});
  }
  EXPECT_FALSE(reader->Next().ValueOrDie());

  const ProcessResult nothing = run({PROGRAM, "transform", "--model", model}, {}, stream_of({}));
  ASSERT_EQ(nothing.exit_code(), 0) << nothing.err;
  const auto empty = reader_of(nothing.out);
  EXPECT_EQ(empty->schema()->field_names(), std::vector<std::string>{"prediction"});
}

TEST(EstimatorMainTest, ValidationDataTakesThePlaceOfTheProgramsOwnChoice) {
  const Folder folder;
  static_cast<void>(make_rows(folder, 24));
  static_cast<void>(make_rows(folder, 10, "others"));
  const auto rows_of = [](const Fitted& fitted) {
    EXPECT_EQ(fitted.process.exit_code(), 0) << fitted.process.err;
    const json epoch = fitted.result.at("history").at(0);
    return std::pair(epoch.at("train").at("rows").get<int>(),
                     epoch.at("validation").at("rows").get<int>());
  };
  json request = request_for(folder);
  request["epochs"] = 1;
  request.erase("validation");
  request["run_id"] = "own";
  EXPECT_EQ(rows_of(fit(request, {"held"})), std::pair(18, 6));
  request["run_id"] = "others";
  request["val_data"] = folder / "others";
  EXPECT_EQ(rows_of(fit(request, {"held"})), std::pair(24, 10));
  // The run remembers how the rows for validation were chosen, because other rows could have been
  // trained with.
  request["validation"] = 0.1;
  EXPECT_THAT(fit(request, {"held"}).process.err,
              HasSubstr("validation: \"0.1\", and the run 'others' was begun with 0.0"));
  request["run_id"] = "by fraction";
  EXPECT_EQ(rows_of(fit(request, {"held"})), std::pair(24, 10));
  request["epochs"] = 2;
  EXPECT_EQ(fit(request).result.at("resumed_epochs"), 1);
  request["validation"] = "held";
  EXPECT_THAT(fit(request).process.err,
              HasSubstr("validation: \"held\", and the run 'by fraction' was begun with \"0.1\""));
}

TEST(EstimatorMainTest, MistakesAreOneLineAndAStatus) {
  const Folder folder;
  static_cast<void>(make_rows(folder, 8));
  const auto fails = [&](const char* key, const json& value) {
    json request = request_for(folder);
    request[key] = value;
    const Fitted fitted = fit(request);
    EXPECT_EQ(fitted.process.exit_code(), 1);
    EXPECT_EQ(std::count(fitted.process.err.begin(), fitted.process.err.end(), '\n'), 1)
        << fitted.process.err;
    return fitted.process.err;
  };
  EXPECT_THAT(fails("epoch", 3), HasSubstr("HVD_ESTIMATOR: unknown key 'epoch'"));
  EXPECT_THAT(fails("epochs", "three"), HasSubstr("epochs is \"three\"; expected a whole number"));
  EXPECT_THAT(fails("epochs", 2.5), HasSubstr("epochs"));
  EXPECT_THAT(fails("shuffle", 1), HasSubstr("shuffle is 1; expected true or false"));
  EXPECT_THAT(fails("input_shapes", {{1.5}}), HasSubstr("input_shapes"));
  EXPECT_THAT(fails("storage_options", {{"key", 5}}), HasSubstr("storage_options"));
  EXPECT_THAT(fails("train_data", folder / "nowhere"), HasSubstr("nowhere"));
  EXPECT_THAT(fails("feature_cols", {"nope"}), HasSubstr("nope"));
  json resumed = request_for(folder);
  resumed["resume"] = true;
  EXPECT_THAT(fit(resumed).process.err, HasSubstr("there is no run 'r'"));

  EXPECT_EQ(run({PROGRAM}).exit_code(), 64);
  EXPECT_EQ(run({PROGRAM, "train"}).exit_code(), 64);
  EXPECT_EQ(run({PROGRAM, "columns"}).exit_code(), 64);
  const ProcessResult missing = run({PROGRAM, "columns", "--model", folder / "nowhere.hvd"});
  EXPECT_EQ(missing.exit_code(), 1);
  EXPECT_THAT(missing.err, HasSubstr("nowhere.hvd"));
  const ProcessResult unset = run({PROGRAM, "fit"}, {{"HVD_ESTIMATOR", std::nullopt}});
  EXPECT_THAT(unset.err, HasSubstr("HVD_ESTIMATOR is not set"));
}

TEST(EstimatorMainTest, NumbersThatDoNotFitAreRefused) {
  const Folder folder;
  static_cast<void>(make_rows(folder, 8));
  const auto refusal = [&](const char* key, const json& value) {
    json request = request_for(folder);
    request[key] = value;
    const Fitted fitted = fit(request);
    EXPECT_EQ(fitted.process.exit_code(), 1);
    return fitted.process.err;
  };
  constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();
  EXPECT_THAT(refusal("epochs", std::int64_t{1} << 32 | 1),
              HasSubstr("epochs is 4294967297; expected a whole number of 32 bits"));
  EXPECT_THAT(refusal("batch_size", kLargest),
              HasSubstr("batch_size is 18446744073709551615; expected a whole number of 64 bits"));
  EXPECT_THAT(refusal("input_shapes", {{kLargest, kFeatures}}),
              HasSubstr("input_shapes is [[18446744073709551615,6]]; expected a list of lists"));
  EXPECT_THAT(refusal("seed", -1), HasSubstr("seed is -1; expected a whole number from 0"));
  json largest = request_for(folder);
  largest["seed"] = kLargest;
  EXPECT_EQ(fit(largest).process.exit_code(), 0);
}

TEST(EstimatorMainTest, AStreamThatIsNoneIsANamedError) {
  const Folder folder;
  static_cast<void>(make_rows(folder, 8));
  const Fitted fitted = fit(request_for(folder));
  ASSERT_EQ(fitted.process.exit_code(), 0) << fitted.process.err;
  const std::string model = fitted.result.at("model").get<std::string>();
  const ProcessResult garbage =
      run({PROGRAM, "transform", "--model", model}, {}, "not arrow at all");
  EXPECT_EQ(garbage.exit_code(), 1);
  EXPECT_THAT(garbage.err, HasSubstr("the Arrow stream to transform"));
  const std::string cut = stream_of({normal({5, kFeatures}, 1)});
  const ProcessResult half =
      run({PROGRAM, "transform", "--model", model}, {}, cut.substr(0, cut.size() - 150));
  EXPECT_EQ(half.exit_code(), 1);
}

}  // namespace
}  // namespace hvd::test
