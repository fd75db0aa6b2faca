// Lists the collectives with their dtypes and forms.
#include "collective_case.hpp"
#include "suite.hpp"

namespace hvd::test {
namespace {

constexpr std::array kTableDtypes{torch::kUInt8,    torch::kInt8,         torch::kInt16,
                                  torch::kInt32,    torch::kInt64,        torch::kFloat16,
                                  torch::kBFloat16, torch::kFloat32,      torch::kFloat64,
                                  torch::kBool,     torch::kComplexFloat, torch::kComplexDouble};
constexpr std::array kFloats{torch::kFloat32, torch::kFloat64, torch::kComplexDouble};
constexpr std::array kOps{ReduceOp::average, ReduceOp::sum, ReduceOp::min, ReduceOp::max,
                          ReduceOp::product};

bool is_defined(torch::ScalarType dtype, ReduceOp op) {
  if (torch::isComplexType(dtype)) return op == ReduceOp::average || op == ReduceOp::sum;
  return dtype != torch::kBool || op != ReduceOp::average;
}

class Table {
 public:
  void add(const CollectiveCase& that) {
    cases_.push_back({that.name(), [that](const Member& member) { check_case(that, member); }});
  }
  std::vector<NamedCase> take() { return std::move(cases_); }

 private:
  std::vector<NamedCase> cases_;
};

void add_allreduce(Table& table, torch::ScalarType dtype) {
  constexpr auto kKind = OpKind::allreduce;
  const bool boolean = dtype == torch::kBool;
  for (const ReduceOp op : kOps) {
    if (!is_defined(dtype, op)) continue;
    table.add({.kind = kKind, .dtype = dtype, .op = op});
    table.add({.kind = kKind, .dtype = dtype, .op = op, .in_place = true});
    if (op == ReduceOp::min || op == ReduceOp::product) continue;
    table.add({.kind = kKind, .dtype = dtype, .op = op, .in_half = true});
    if (!boolean) {
      table.add({.kind = kKind, .dtype = dtype, .op = op, .prescale = 1.5, .postscale = 0.5});
    }
  }
  for (const auto layout : {Layout::transposed, Layout::scalar, Layout::empty}) {
    table.add({.kind = kKind, .dtype = dtype, .layout = layout});
    table.add({.kind = kKind, .dtype = dtype, .layout = layout, .in_place = true});
  }
  table.add({.kind = kKind, .dtype = dtype, .group = 3});
  table.add({.kind = kKind, .dtype = dtype, .in_place = true, .in_half = true, .group = 3});
  for (const auto compression : {Compression::fp16, Compression::bf16}) {
    table.add({.kind = kKind, .dtype = dtype, .compression = compression});
    table.add({.kind = kKind, .dtype = dtype, .compression = compression, .in_place = true});
  }
}

void add_reducescatter(Table& table, torch::ScalarType dtype) {
  constexpr auto kKind = OpKind::reducescatter;
  const bool boolean = dtype == torch::kBool;
  for (const ReduceOp op : {ReduceOp::average, ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
    if (!is_defined(dtype, op)) continue;
    table.add({.kind = kKind, .dtype = dtype, .op = op});
    table.add({.kind = kKind, .dtype = dtype, .op = op, .rows = Rows::uneven});
  }
  if (!boolean) table.add({.kind = kKind, .dtype = dtype, .prescale = 1.5, .postscale = 0.5});
  table.add({.kind = kKind, .dtype = dtype, .layout = Layout::transposed, .rows = Rows::few});
  table.add({.kind = kKind, .dtype = dtype, .in_half = true});
  table.add({.kind = kKind, .dtype = dtype, .rows = Rows::uneven, .group = 2});
  table.add({.kind = kKind, .dtype = dtype, .compression = Compression::bf16});
}

void add_moving(Table& table, torch::ScalarType dtype) {
  for (const auto kind : {OpKind::allgather, OpKind::alltoall}) {
    for (const Rows rows : {Rows::even, Rows::uneven}) {
      table.add({.kind = kind, .dtype = dtype, .rows = rows});
      table.add({.kind = kind, .dtype = dtype, .rows = rows, .in_half = true});
      table.add({.kind = kind, .dtype = dtype, .rows = rows, .group = 2});
    }
    table.add({.kind = kind, .dtype = dtype, .layout = Layout::transposed, .rows = Rows::uneven});
    table.add({.kind = kind, .dtype = dtype, .layout = Layout::empty});
  }
  table.add({.kind = OpKind::allgather, .dtype = dtype, .layout = Layout::scalar});
  for (const bool in_place : {false, true}) {
    constexpr auto kKind = OpKind::broadcast;
    table.add({.kind = kKind, .dtype = dtype, .in_place = in_place});
    table.add({.kind = kKind, .dtype = dtype, .in_place = in_place, .in_half = true});
    table.add({.kind = kKind, .dtype = dtype, .in_place = in_place, .group = 3});
    table.add({.kind = kKind, .dtype = dtype, .layout = Layout::transposed, .in_place = in_place});
  }
}

void add_gradient_cases(Table& table, torch::ScalarType dtype) {
  const auto add_forms = [&table](CollectiveCase that) {
    that.gradient = true;
    for (const bool in_half : {false, true}) {
      for (const int group : {0, 2}) {
        that.in_half = in_half;
        that.group = group;
        table.add(that);
      }
    }
  };
  for (const auto kind : {OpKind::allreduce, OpKind::reducescatter}) {
    add_forms({.kind = kind, .dtype = dtype});
    add_forms(
        {.kind = kind, .dtype = dtype, .op = ReduceOp::average, .layout = Layout::transposed});
    add_forms({.kind = kind, .dtype = dtype, .prescale = 1.5, .postscale = 0.25});
  }
  add_forms({.kind = OpKind::allreduce, .dtype = dtype, .layout = Layout::scalar});
  add_forms({.kind = OpKind::allreduce, .dtype = dtype, .compression = Compression::fp16});
  add_forms({.kind = OpKind::reducescatter, .dtype = dtype, .rows = Rows::uneven});
  add_forms({.kind = OpKind::broadcast, .dtype = dtype});
  for (const auto kind : {OpKind::allgather, OpKind::alltoall}) {
    add_forms({.kind = kind, .dtype = dtype});
    add_forms({.kind = kind, .dtype = dtype, .rows = Rows::uneven});
  }
  add_forms({.kind = OpKind::allgather, .dtype = dtype, .layout = Layout::scalar});
}

}  // namespace

std::vector<NamedCase> collective_cases() {
  Table table;
  for (const auto dtype : kTableDtypes) {
    add_allreduce(table, dtype);
    add_reducescatter(table, dtype);
    add_moving(table, dtype);
  }
  for (const auto dtype : kFloats) add_gradient_cases(table, dtype);
  return table.take();
}

}  // namespace hvd::test
