// Tests a trained model on tensors, tables and files, its own file, and the history.
#include <cmath>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <hvd_test/errors.hpp>
#include <parquet/arrow/writer.h>

#include "fit_data.hpp"

namespace hvd::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<arrow::RecordBatch> table_of(const torch::Tensor& features,
                                             const std::string& name = "features") {
  const auto values = std::make_shared<arrow::FloatBuilder>();
  arrow::ListBuilder lists(arrow::default_memory_pool(), values);
  for (std::int64_t row = 0; row < features.size(0); ++row) {
    EXPECT_TRUE(lists.Append().ok());
    const torch::Tensor one = features[row].contiguous();
    EXPECT_TRUE(values->AppendValues(one.const_data_ptr<float>(), one.numel()).ok());
  }
  const auto array = lists.Finish().ValueOrDie();
  return arrow::RecordBatch::Make(arrow::schema({arrow::field(name, array->type())}),
                                  features.size(0), {array});
}

Model make_model(const Folder& folder, const Change& change = {}) {
  EstimatorOptions options = make_options(folder);
  if (change) change(options);
  return Estimator(std::move(options)).fit(make_rows(folder, 24));
}

TEST(ModelTest, TransformIsForwardInEvaluationMode) {
  const Folder folder;
  const Model model = make_model(folder, [](EstimatorOptions& options) {
    options.model = torch::nn::Sequential(torch::nn::Linear(kFeatures, 8), torch::nn::Dropout(0.5),
                                          torch::nn::Linear(8, kClasses));
  });
  const torch::Tensor features = normal({5, kFeatures}, 9);
  torch::nn::Module& module = model.module().module();
  module.eval();
  const torch::NoGradGuard no_grad;
  const torch::Tensor wanted = model.module().forward({features}).at(0);
  module.train();
  const auto given = model.transform({features});
  EXPECT_TRUE(equal_bits(given.at(0), wanted));
  EXPECT_FALSE(given.at(0).requires_grad());
  EXPECT_TRUE(module.is_training());

  const auto table = model.transform(*table_of(features));
  ASSERT_TRUE(table->ValidateFull().ok());
  EXPECT_THAT(table->schema()->field_names(), ElementsAre("features", "prediction"));
  const auto& lists = static_cast<const arrow::ListArray&>(*table->column(1));
  const auto& values = static_cast<const arrow::FloatArray&>(*lists.values());
  ASSERT_EQ(lists.length(), 5);
  for (std::int64_t row = 0; row < 5; ++row) {
    EXPECT_EQ(lists.value_length(row), kClasses);
    for (std::int64_t i = 0; i < kClasses; ++i) {
      EXPECT_EQ(values.Value(lists.value_offset(row) + i), wanted[row][i].item<float>());
    }
  }
}

TEST(ModelTest, TransformLeavesEachModuleInItsMode) {
  torch::nn::BatchNorm1d frozen(8);
  torch::nn::Dropout dropout(0.5);
  torch::nn::Sequential net(torch::nn::Linear(kFeatures, 8), frozen, dropout);
  const Model model(net, {});
  frozen->eval();
  static_cast<void>(model.transform({normal({5, kFeatures}, 9)}));
  EXPECT_TRUE(net->is_training());
  EXPECT_TRUE(dropout->is_training());
  EXPECT_FALSE(frozen->is_training());

  net->eval();
  dropout->train();
  static_cast<void>(model.transform({normal({5, kFeatures}, 9)}));
  EXPECT_FALSE(net->is_training());
  EXPECT_TRUE(dropout->is_training());
  EXPECT_FALSE(frozen->is_training());
}

TEST(ModelTest, ATableWithoutRowsHasTheColumnsAllTheSame) {
  const Folder folder;
  const Model model = make_model(folder);
  const auto table = model.transform(*table_of(torch::empty({0, kFeatures})));
  EXPECT_EQ(table->num_rows(), 0);
  EXPECT_THAT(table->schema()->field(1)->type()->ToString(), HasSubstr("list"));
  EXPECT_TRUE(table->ValidateFull().ok());
}

TEST(ModelTest, AnOutputWithoutValuesIsAColumnOfEmptyLists) {
  const auto forward = [](const Trainable::Tensors& inputs) {
    return Trainable::Tensors{inputs.at(0).narrow(1, 0, 0)};
  };
  const Model model(
      Trainable(std::make_shared<torch::nn::Module>(), forward),
      {.feature_cols = {"features"}, .output_cols = {"nothing"}, .output_shapes = {{0}}});
  const auto table = model.outputs(*table_of(normal({3, kFeatures}, 1)));
  ASSERT_TRUE(table->ValidateFull().ok());
  const auto& lists = static_cast<const arrow::ListArray&>(*table->column(0));
  ASSERT_EQ(lists.length(), 3);
  for (std::int64_t row = 0; row < 3; ++row) EXPECT_EQ(lists.value_length(row), 0);
}

TEST(ModelTest, OneOutputPerRowIsANumber) {
  const Folder folder;
  const Model model = make_model(folder, [](EstimatorOptions& options) {
    options.model = torch::nn::Sequential(torch::nn::Linear(kFeatures, 1));
    options.metrics = {};
    options.loss = [](const torch::Tensor& output, const torch::Tensor& label) {
      return torch::mse_loss(output.flatten(), label.to(torch::kFloat32));
    };
  });
  EXPECT_THAT(model.output_types(), ElementsAre("float"));
  const auto table = model.outputs(*table_of(normal({4, kFeatures}, 1)));
  EXPECT_EQ(table->column(0)->type_id(), arrow::Type::FLOAT);
  EXPECT_EQ(table->column(0)->length(), 4);
}

TEST(ModelTest, ColumnsThatDoNotFitAreNamed) {
  const Folder folder;
  Model model = make_model(folder);
  const torch::Tensor features = normal({3, kFeatures}, 1);
  const auto message = [&](const arrow::RecordBatch& table) {
    const Error error = error_of([&] { static_cast<void>(model.transform(table)); });
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    return std::string(error.what());
  };
  EXPECT_THAT(message(*table_of(features, "other")), HasSubstr("features"));
  EXPECT_THAT(message(*table_of(normal({3, 5}, 1))),
              AllOf(HasSubstr("model"), HasSubstr("[3, 5]")));
  model.set_output_cols({"features"});
  EXPECT_THAT(message(*table_of(features)), HasSubstr("a column 'features' already"));
  const auto refused = [&](std::vector<std::string> names) {
    return std::string(error_of([&] { model.set_output_cols(std::move(names)); }).what());
  };
  EXPECT_THAT(refused({"a", "b"}), HasSubstr("output_cols: 2 names"));
  EXPECT_THAT(refused({""}), HasSubstr("output_cols"));
}

TEST(ModelTest, FilesAreTransformedRowByRow) {
  const Folder folder;
  const Model model = make_model(folder);
  const ParquetSource source = make_rows(folder, 29, "score");
  const ParquetSource scored = model.transform(source, folder / "scored");
  EXPECT_EQ(scored.rows(), 29);
  std::vector<std::string> names;
  for (const auto& column : scored.schema()) names.push_back(column.name);
  EXPECT_THAT(names, ElementsAre("features", "label", "held", "prediction"));
  BatchReader reader(scored, {.features = {"features", "prediction"}}, Selection::all(scored),
                     {.batch_size = 29, .shuffle = false});
  const auto batch = reader.next();
  ASSERT_TRUE(batch);
  EXPECT_TRUE(torch::allclose(batch->features[1], model.transform({batch->features[0]})[0]));

  const Error again =
      error_of([&] { static_cast<void>(model.transform(source, folder / "scored")); });
  EXPECT_THAT(again.what(), HasSubstr("has Parquet files already"));
  const Error exists =
      error_of([&] { static_cast<void>(model.transform(scored, folder / "new")); });
  EXPECT_THAT(exists.what(), HasSubstr("a column 'prediction' already"));
  EXPECT_FALSE(std::filesystem::exists(folder / "new"));

  // A reader of the folder would take this file for one of the result.
  std::filesystem::create_directories(folder / "below/day=1");
  std::filesystem::copy(folder / "score/part-0.parquet", folder / "below/day=1");
  const Error below =
      error_of([&] { static_cast<void>(model.transform(source, folder / "below")); });
  EXPECT_THAT(below.what(), HasSubstr("has Parquet files already: day=1/part-0.parquet"));
}

TEST(ModelTest, AnOutputColumnOfALaterFileIsFoundBeforeAnythingIsWritten) {
  const Folder folder;
  const Model model = make_model(folder);
  const torch::Tensor features = normal({9, kFeatures}, 1);
  write_parquet(folder / "rows/part-0.parquet", {"features"}, {features});
  write_parquet(folder / "rows/part-1.parquet", {"features", "prediction"},
                {features, torch::ones({9})});
  const Error error = error_of([&] {
    static_cast<void>(model.transform(ParquetSource::open(folder / "rows"), folder / "scored"));
  });
  EXPECT_EQ(error.code(), Errc::invalid_argument);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("part-1.parquet"), HasSubstr("a column 'prediction' already")));
  EXPECT_FALSE(std::filesystem::exists(folder / "scored"));
}

TEST(ModelTest, FilesKeepTheirTypes) {
  const Folder folder;
  const Model model = make_model(folder);
  write_parquet(folder / "rows/part-0.parquet", {"features"}, {normal({9, kFeatures}, 1)},
                {.fixed_size_lists = true});
  const ParquetSource source = ParquetSource::open(folder / "rows");
  const ParquetSource scored = model.transform(source, folder / "scored");
  EXPECT_THAT(source.schema().at(0).type, HasSubstr("fixed_size_list"));
  EXPECT_EQ(scored.schema().at(0).type, source.schema().at(0).type);
  EXPECT_EQ(scored.schema().size(), 2U);
}

// Tensors on "meta" have no values, so this needs no GPU.
TEST(ModelTest, InputsAndLabelsAreMovedToTheDevice) {
  const auto net = std::make_shared<torch::nn::Module>();
  const torch::Tensor weight =
      net->register_parameter("weight", torch::ones({kFeatures, kClasses}, torch::kMeta));
  const auto forward = [weight](const Trainable::Tensors& inputs) {
    return Trainable::Tensors{inputs.at(0).mm(weight)};
  };
  const Model model(Trainable(net, forward), {});
  const std::vector<torch::Tensor> outputs = model.transform({torch::ones({2, kFeatures})});
  ASSERT_EQ(outputs.size(), 1U);
  EXPECT_TRUE(outputs[0].is_meta());

  const BatchFunction loss = [](const torch::Tensor& output, const torch::Tensor& label) {
    return label.is_meta() ? torch::mse_loss(output, label) : torch::Tensor();
  };
  EXPECT_TRUE(loss(outputs, {torch::ones({2, kClasses})}, false, "loss").is_meta());
}

TEST(ModelTest, ARowOfAFileThatCannotBeScoredIsNamedAndNothingIsWritten) {
  const Folder folder;
  const Model model = make_model(folder);
  const auto values = std::make_shared<arrow::FloatBuilder>();
  arrow::ListBuilder lists(arrow::default_memory_pool(), values);
  for (int row = 0; row < 5000; ++row) {
    if (row == 4500) {
      ASSERT_TRUE(lists.AppendNull().ok());
      continue;
    }
    ASSERT_TRUE(lists.Append().ok());
    ASSERT_TRUE(values->AppendValues(std::vector<float>(kFeatures, 1)).ok());
  }
  const auto array = lists.Finish().ValueOrDie();
  const auto table =
      arrow::Table::Make(arrow::schema({arrow::field("features", array->type())}), {array});
  std::filesystem::create_directory(folder / "rows");
  const std::string file = folder / "rows/part-0.parquet";
  const auto sink = arrow::io::FileOutputStream::Open(file).ValueOrDie();
  ASSERT_TRUE(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), sink, 2000).ok());
  ASSERT_TRUE(sink->Close().ok());

  const ParquetSource source = ParquetSource::open(folder / "rows");
  const Error error =
      error_of([&] { static_cast<void>(model.transform(source, folder / "scored")); });
  EXPECT_EQ(error.code(), Errc::invalid_argument);
  EXPECT_THAT(error.what(), HasSubstr(file + ": column 'features', row 4500: null"));
  EXPECT_FALSE(std::filesystem::exists(folder / "scored"));
}

TEST(ModelTest, SavedAndLoadedItIsTheSame) {
  const Folder folder;
  Model model = make_model(folder);
  model.set_output_cols({"score"});
  model.save(folder / "models/model.hvd");
  const Model loaded = Model::load(folder / "models/model.hvd", make_network(50));
  EXPECT_TRUE(equal_bits(values_of(loaded), values_of(model)));
  EXPECT_EQ(loaded.history(), model.history());
  EXPECT_EQ(loaded.run_id(), model.run_id());
  EXPECT_THAT(loaded.description().output_cols, ElementsAre("score"));
  EXPECT_EQ(loaded.description().output_shapes, model.description().output_shapes);
}

TEST(ModelTest, AModelThatDoesNotFitTheProgramOrIsDamagedIsNamed) {
  const Folder folder;
  const Model model = make_model(folder);
  const std::string file = folder / "model.hvd";
  model.save(file);
  const auto load = [&](Trainable module) {
    return error_of([&] { static_cast<void>(Model::load(file, std::move(module))); });
  };
  const torch::nn::Sequential wide(torch::nn::Linear(kFeatures, 9), torch::nn::Tanh(),
                                   torch::nn::Linear(9, kClasses));
  const Error shape = load(wide);
  EXPECT_EQ(shape.code(), Errc::invalid_argument);
  EXPECT_THAT(shape.what(), AllOf(HasSubstr("'0.weight' in shape [8, 6]"), HasSubstr("[9, 6]")));
  EXPECT_THAT(load(torch::nn::Sequential(torch::nn::Linear(kFeatures, 8))).what(),
              HasSubstr("has 4 parameters and buffers, the program's has 2"));
  torch::nn::Sequential half = make_network();
  half->to(torch::kFloat64);
  EXPECT_THAT(load(half).what(), HasSubstr("float64"));

  std::string bytes = content_of(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  write_content(file, bytes);
  const Error damaged = load(make_network());
  EXPECT_EQ(damaged.code(), Errc::protocol);
  EXPECT_THAT(damaged.what(), AllOf(HasSubstr("model.hvd"), HasSubstr("damaged")));
  std::filesystem::remove(file);
  EXPECT_THAT(load(make_network()).what(), HasSubstr("there is no file"));
}

TEST(HistoryTest, IsJsonAndBack) {
  History history;
  history.epochs.push_back(
      {.epoch = 1,
       .ranks = 2,
       .learning_rate = 0.1,
       .seconds = 1.5,
       .train = {.rows = 10, .loss = 0.1 + 0.2, .metrics = {{"b", 1}, {"a", 2}}}});
  history.epochs.push_back(history.epochs[0]);
  history.epochs[1].epoch = 2;
  history.epochs[1].validation = {.rows = 3, .loss = 0.5};
  EXPECT_EQ(History::from_json(history.to_json()), history);

  history.epochs[0].train.loss = std::nan("");
  const std::string json = history.to_json();
  EXPECT_THAT(json, HasSubstr("null"));
  EXPECT_TRUE(std::isnan(History::from_json(json).epochs[0].train.loss));
  EXPECT_THAT(history.to_svg("a < b & c"), AllOf(HasSubstr("a &lt; b &amp; c"), HasSubstr("</svg>"),
                                                 testing::Not(HasSubstr("nan"))));
  EXPECT_THAT(History().to_svg("none"), HasSubstr("</svg>"));
  for (const char* const wrong : {"", "{}", "[1]", R"([{"epoch": "x"}])"}) {
    EXPECT_EQ(error_of([&] { static_cast<void>(History::from_json(wrong)); }).code(),
              Errc::protocol);
  }
}

TEST(HistoryTest, NumbersThatDoNotFitAreRefused) {
  const auto refusal = [](const std::string& field, const std::string& number) {
    const auto value = [&](const char* name) { return name == field ? number : "1"; };
    const std::string json =
        fmt::format(R"([{{"epoch": {}, "ranks": {}, "learning_rate": {}, "seconds": {},)"
                    R"( "train": {{"rows": {}, "loss": {}}}, "validation": null}}])",
                    value("epoch"), value("ranks"), value("learning_rate"), value("seconds"),
                    value("rows"), value("loss"));
    const Error error = error_of([&] { static_cast<void>(History::from_json(json)); });
    EXPECT_EQ(error.code(), Errc::protocol);
    return std::string(error.what());
  };
  for (const char* const number : {"2147483648", "-2147483649", "1180591620717411303424",
                                   "18446744073709551615", "1.5", "true"}) {
    EXPECT_THAT(refusal("epoch", number), HasSubstr("a history: 'epoch' is "));
    EXPECT_THAT(refusal("ranks", number), HasSubstr("which is no whole number of 32 bits"));
  }
  for (const char* const number : {"9223372036854775808", "1180591620717411303424", "0.5"}) {
    EXPECT_THAT(refusal("rows", number), HasSubstr("'train.rows' is "));
  }
  EXPECT_THAT(refusal("learning_rate", "false"), HasSubstr("'learning_rate' is false"));
  EXPECT_THAT(refusal("seconds", "1e400"), HasSubstr("1e400"));
}

}  // namespace
}  // namespace hvd::test
