// Tests the conversion of Arrow columns to tensors: values, shapes and errors.
#include <arrow/api.h>
#include <arrow/json/from_string.h>
#include <gmock/gmock.h>
#include <hvd_test/errors.hpp>

#include <hvd/estimator/columns.hpp>

namespace hvd {
namespace {

using test::error_of;
using testing::HasSubstr;

using Type = std::shared_ptr<arrow::DataType>;

struct Made {
  std::string name;
  Type type;
  std::string json;
};

std::shared_ptr<arrow::RecordBatch> batch_of(const std::vector<Made>& columns) {
  arrow::FieldVector fields;
  arrow::ArrayVector arrays;
  for (const Made& column : columns) {
    fields.push_back(arrow::field(column.name, column.type));
    arrays.push_back(arrow::json::ArrayFromJSONString(column.type, column.json).ValueOrDie());
  }
  return arrow::RecordBatch::Make(arrow::schema(fields), arrays.front()->length(), arrays);
}

torch::Tensor feature(const Type& type, const std::string& json,
                      std::vector<std::vector<std::int64_t>> shapes = {}) {
  return to_tensors(*batch_of({{"x", type, json}}),
                    {.features = {"x"}, .input_shapes = std::move(shapes)})
      .front();
}

torch::Tensor label(const Type& type, const std::string& json,
                    std::vector<std::vector<std::int64_t>> shapes = {}) {
  return to_labels(*batch_of({{"y", type, json}}),
                   {.labels = {"y"}, .label_shapes = std::move(shapes)})
      .front();
}

void expect_equal(const torch::Tensor& got, const torch::Tensor& wanted) {
  EXPECT_EQ(got.dtype(), wanted.dtype());
  EXPECT_TRUE(got.sizes() == wanted.sizes() && torch::equal(got, wanted)) << got;
}

TEST(Columns, LabelsGetTheirShapes) {
  expect_equal(label(arrow::int32(), "[1, 2]"), torch::tensor({1, 2}, torch::kInt64));
  expect_equal(label(arrow::float64(), "[1, 2]", {{-1, 1}}), torch::tensor({{1.0F}, {2.0F}}));
  expect_equal(label(arrow::list(arrow::float32()), "[[1, 2, 3, 4]]", {{2, 2}}),
               torch::tensor({1.0F, 2.0F, 3.0F, 4.0F}).view({1, 2, 2}));
  try {
    (void)label(arrow::float64(), "[1, 2]", {{2}});
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("column 'y': 1 values per row do not fill the shape [2]"));
  }
}

TEST(Columns, OfEveryNumberAreFloatInputs) {
  const torch::Tensor wanted = torch::tensor({1.0F, 0.0F, 2.0F});
  for (const Type& type :
       {arrow::int8(), arrow::int16(), arrow::int32(), arrow::int64(), arrow::uint8(),
        arrow::uint16(), arrow::uint32(), arrow::uint64(), arrow::float32(), arrow::float64()}) {
    SCOPED_TRACE(type->ToString());
    expect_equal(feature(type, "[1, 0, 2]"), wanted);
  }
  expect_equal(feature(arrow::float16(), "[1, 0, 2]"), wanted);
  expect_equal(feature(arrow::boolean(), "[true, false]"), torch::tensor({1.0F, 0.0F}));
  expect_equal(feature(arrow::decimal128(5, 2), R"(["1.25", "-3.50"])"),
               torch::tensor({1.25F, -3.5F}));
  expect_equal(feature(arrow::decimal256(50, 1), R"(["1.5"])"), torch::tensor({1.5F}));
}

TEST(Columns, OfLabelsKeepWholeNumbers) {
  const std::int64_t large = (std::int64_t{1} << 53) + 1;
  expect_equal(label(arrow::int64(), "[9007199254740993]"), torch::tensor({large}));
  expect_equal(label(arrow::uint8(), "[255, 0]"),
               torch::tensor({std::int64_t{255}, std::int64_t{0}}));
  expect_equal(label(arrow::boolean(), "[true, false]"),
               torch::tensor({std::int64_t{1}, std::int64_t{0}}));
  expect_equal(label(arrow::float64(), "[0.5]"), torch::tensor({0.5F}));
  expect_equal(label(arrow::list(arrow::int32()), "[[1, 2], [3, 4]]"),
               torch::tensor({1, 2, 3, 4}, torch::kInt64).reshape({2, 2}));
}

TEST(Columns, OfListsHaveADimensionMore) {
  const torch::Tensor wanted = torch::arange(6.0).reshape({2, 3});
  expect_equal(feature(arrow::list(arrow::float32()), "[[0, 1, 2], [3, 4, 5]]"), wanted);
  expect_equal(feature(arrow::large_list(arrow::float64()), "[[0, 1, 2], [3, 4, 5]]"), wanted);
  expect_equal(feature(arrow::fixed_size_list(arrow::int32(), 3), "[[0, 1, 2], [3, 4, 5]]"),
               wanted);
  expect_equal(
      feature(arrow::list(arrow::list(arrow::uint8())), "[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]"),
      torch::arange(8.0).reshape({2, 2, 2}));
  expect_equal(feature(arrow::list(arrow::float32()), "[]"), torch::empty({0, 0}));
}

TEST(Columns, OfASliceAreThoseOfItsRows) {
  for (const Type& type :
       {arrow::list(arrow::float32()), arrow::fixed_size_list(arrow::float32(), 2)}) {
    const auto batch = batch_of({{"x", type, "[[0, 1], [2, 3], [4, 5], [6, 7]]"},
                                 {"b", arrow::boolean(), "[true, false, false, true]"}})
                           ->Slice(1, 2);
    const Columns columns{.features = {"x"}, .labels = {"b"}};
    expect_equal(to_tensors(*batch, columns).front(), torch::arange(2.0, 6.0).reshape({2, 2}));
    expect_equal(to_labels(*batch, columns).front(), torch::zeros({2}, torch::kInt64));
  }
}

TEST(Columns, OfSparksDenseVectorsAreTheirValues) {
  const Type vector =
      arrow::struct_({arrow::field("type", arrow::int8()), arrow::field("size", arrow::int32()),
                      arrow::field("indices", arrow::list(arrow::int32())),
                      arrow::field("values", arrow::list(arrow::float64()))});
  expect_equal(feature(vector, "[[1, null, null, [0.5, 1]], [1, null, null, [2, 3]]]"),
               torch::tensor({0.5F, 1.0F, 2.0F, 3.0F}).reshape({2, 2}));
  const Error sparse =
      error_of([&] { (void)feature(vector, "[[1, null, null, [0.5]], [0, 1, [0], [0.5]]]"); });
  EXPECT_THAT(sparse.what(), HasSubstr("column 'x', row 1: a sparse vector"));
}

TEST(Columns, TakeTheShapesOfTheModel) {
  const std::string rows = "[[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]";
  const torch::Tensor wanted = torch::arange(12.0).reshape({2, 1, 2, 3});
  expect_equal(feature(arrow::list(arrow::float32()), rows, {{1, 2, 3}}), wanted);
  expect_equal(feature(arrow::list(arrow::float32()), rows, {{-1, 1, 2, 3}}), wanted);
  expect_equal(feature(arrow::list(arrow::float32()), "[]", {{1, 2, 3}}),
               torch::empty({0, 1, 2, 3}));
  expect_equal(feature(arrow::float32(), "[1, 2]", {{1}}),
               torch::tensor({1.0F, 2.0F}).reshape({2, 1}));
  const Error error = error_of([&] {
    (void)feature(arrow::list(arrow::float32()), rows, {{1, 2, 2}});
  });
  EXPECT_EQ(error.code(), Errc::invalid_argument);
  EXPECT_THAT(error.what(),
              HasSubstr("column 'x': 6 values per row do not fill the shape [1, 2, 2]"));
}

TEST(Columns, OfOneShapeLieSideBySide) {
  const auto batch = batch_of(
      {{"b", arrow::int32(), "[1, 2]"}, {"a", arrow::list(arrow::float64()), "[[3, 4], [5, 6]]"}});
  const Columns columns{.features = {"a", "b"}, .input_shapes = {{3}}};
  EXPECT_EQ(columns.inputs(), 1u);
  const auto inputs = to_tensors(*batch, columns);
  ASSERT_EQ(inputs.size(), 1u);
  expect_equal(inputs.front(), torch::tensor({3.0F, 4.0F, 1.0F, 5.0F, 6.0F, 2.0F}).reshape({2, 3}));
  expect_equal(to_tensors(*batch->Slice(0, 0), columns).front(), torch::empty({0, 3}));
  EXPECT_THAT(error_of([&] {
                (void)to_tensors(*batch, {.features = {"a", "b"}, .input_shapes = {{4}}});
              }).what(),
              HasSubstr("columns 'a', 'b': 3 values per row do not fill the shape [4]"));
}

TEST(Columns, MayBeSeveralInputsOfOtherTypes) {
  const auto batch =
      batch_of({{"a", arrow::int64(), "[16777217]"}, {"b", arrow::float64(), "[0.1]"}});
  Columns columns{.features = {"a", "b"}, .feature_types = {torch::kInt64, torch::kFloat64}};
  const auto inputs = to_tensors(*batch, columns);
  expect_equal(inputs.at(0), torch::tensor({std::int64_t{16777217}}));
  expect_equal(inputs.at(1), torch::tensor({0.1}, torch::kFloat64));
  columns.feature_types = {torch::kFloat64};
  expect_equal(to_tensors(*batch, columns).at(0), torch::tensor({16777217.0}, torch::kFloat64));
}

TEST(Columns, SayWhereANullIs) {
  const auto error = [](const Type& type, const std::string& json) {
    const auto batch = batch_of({{"x", type, json}});
    const Error thrown =
        error_of([&] { (void)to_tensors(*batch, {.features = {"x"}}, /*first_row=*/10); });
    EXPECT_EQ(thrown.code(), Errc::invalid_argument);
    return std::string(thrown.what());
  };
  EXPECT_THAT(error(arrow::float32(), "[1, 2, null]"), HasSubstr("column 'x', row 12: null"));
  EXPECT_THAT(error(arrow::list(arrow::int8()), "[[1], null]"), HasSubstr("'x', row 11: null"));
  EXPECT_THAT(error(arrow::list(arrow::int8()), "[[1, 2], [3, null]]"), HasSubstr("row 11: null"));
  EXPECT_THAT(
      error(arrow::list(arrow::list(arrow::int8())), "[[[1, 2], [3, 4]], [[1, null], [3, 4]]]"),
      HasSubstr("row 11: null"));
  EXPECT_THAT(error(arrow::list(arrow::int8()), "[[1], [2], [3, 4]]"),
              HasSubstr("column 'x', row 12: 2 values, and 1 in row 10"));
  EXPECT_THAT(error(arrow::uint64(), "[18446744073709551615]"),
              HasSubstr("above the largest int64"));
}

TEST(Columns, AreRefusedByNameBeforeARowIsRead) {
  const auto schema =
      arrow::schema({arrow::field("x", arrow::fixed_size_list(arrow::float32(), 4)),
                     arrow::field("text", arrow::utf8()), arrow::field("y", arrow::int32()),
                     arrow::field("twice", arrow::int32()), arrow::field("twice", arrow::int32())});
  const auto why = [&](const Columns& columns) {
    const Error error = error_of([&] { require_columns(*schema, columns, /*with_labels=*/true); });
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    return std::string(error.what());
  };
  require_columns(*schema, {.features = {"x"}, .labels = {"y"}, .input_shapes = {{2, 2}}}, true);
  require_columns(*schema, {.features = {"x"}, .labels = {"z"}}, false);
  EXPECT_THAT(why({.features = {"z"}}), HasSubstr("no column 'z' (there are: 'x', 'text', 'y'"));
  EXPECT_THAT(why({.features = {"x"}, .labels = {"z"}}), HasSubstr("no column 'z'"));
  EXPECT_THAT(why({.features = {"text"}}),
              HasSubstr("column 'text' is string: neither numbers nor lists of them"));
  EXPECT_THAT(why({.features = {"twice"}}), HasSubstr("column 'twice' is there 2 times"));
  EXPECT_THAT(why({.features = {"x"}, .input_shapes = {{1, 28, 28}}}),
              HasSubstr("column 'x': 4 values per row do not fill the shape [1, 28, 28]"));
  EXPECT_THAT(why({.features = {"x", "y"}, .input_shapes = {{4}}}),
              HasSubstr("columns 'x', 'y': 5 values per row do not fill the shape [4]"));
  EXPECT_THAT(why({}), HasSubstr("no feature columns"));
  EXPECT_THAT(why({.features = {"x", "x"}}), HasSubstr("column 'x' is named twice"));
  EXPECT_THAT(why({.features = {"x"}, .input_shapes = {{4}, {1}}}),
              HasSubstr("2 input shapes for 1 feature columns"));
  EXPECT_THAT(why({.features = {"x"}, .labels = {"y"}, .label_shapes = {{1}, {1}}}),
              HasSubstr("2 label shapes for 1 label columns"));
  EXPECT_THAT(why({.features = {"x"}, .labels = {"y"}, .label_shapes = {{0}}}),
              HasSubstr("label shape [0]"));
  EXPECT_THAT(why({.features = {"x"}, .input_shapes = {{-1, 0}}}),
              HasSubstr("input shape [-1, 0]"));
  EXPECT_THAT(why({.features = {"x"}, .feature_types = {torch::kInt64, torch::kInt64}}),
              HasSubstr("2 feature types for 1 inputs"));
}

}  // namespace
}  // namespace hvd
