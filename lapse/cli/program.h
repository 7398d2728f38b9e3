// The command line of `lapse`: which verb it names, and with what.
#pragma once

#include <memory>

#include "lapse/cli/verbs.h"
#include "lapse/core/error.h"

namespace lapse {

/// There is no such verb or flag, or an argument is missing or has a wrong value. `main` exits with 2.
class Misuse : public Error {
 public:
  using Error::Error;
};

/// Every verb. The actions that `parse` gives refer to it.
class Program {
 public:
  Program();
  ~Program();
  Program(const Program&) = delete;

  /// What is asked for, which is not done yet: to print help is an action too. Misuse, with one line.
  Action parse(int argc, const char* const* argv);

 private:
  Action understood(int argc, const char* const* argv);

  std::unique_ptr<CLI::App> app_;
  Action action_;
};

}  // namespace lapse
