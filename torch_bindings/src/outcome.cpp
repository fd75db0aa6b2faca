#include "outcome.hpp"

#include <c10/util/Exception.h>

#include <hvd/core/wire.hpp>
#include <hvd/torch/object.hpp>

namespace hvd {

void Outcome::set(const Error& error) {
  code_ = error.code();
  text_ = error.what();
}

void Outcome::attempt(const std::function<void()>& function) {
  try {
    function();
  } catch (const Error& error) {
    set(error);
  } catch (const c10::Error& error) {
    set(Error(Errc::invalid_argument, error.what_without_backtrace()));
  } catch (const std::exception& error) {
    set(Error(Errc::invalid_argument, error.what()));
  }
}

void Outcome::share(Context& context) const {
  WireWriter writer;
  writer.u8(code_ ? 1 : 0);
  if (code_) {
    writer.u8(static_cast<std::uint8_t>(*code_));
    writer.text(text_);
  }
  const Bytes received =
      broadcast_object(context, writer.take(), 0, {.name = "checkpoint/outcome"});
  WireReader reader(received, "checkpoint outcome");
  if (reader.u8() == 0) return;
  const auto code = static_cast<Errc>(reader.u8());
  throw Error(code, reader.text(kLongestReport));
}

}  // namespace hvd
