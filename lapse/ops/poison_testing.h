// Memory that is not initialised holds NaN in a test.
#pragma once

#include <ATen/Context.h>

namespace lapse {

/// While it lives, at::empty and empty_rows give NaN: what a kernel leaves unwritten, or reads beyond its inputs,
/// shows.
class Poison {
 public:
  Poison() { at::globalContext().setDeterministicAlgorithms(true, true); }
  Poison(const Poison&) = delete;
  ~Poison() { at::globalContext().setDeterministicAlgorithms(false, false); }
};

}  // namespace lapse
