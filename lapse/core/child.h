// Work that may end its whole process, in a process of its own.
#pragma once

#include <functional>
#include <string>

namespace lapse {

/// What `make` returns, in a process that is forked for it: libraries that end the process where memory is short (as
/// SentencePiece's trainer) then leave ours alive. Only for work that needs none of our threads. What `make` throws is
/// thrown here: std::bad_alloc as such, also for a thread that could not be started; all else as std::runtime_error
/// with its message, and so is an end without a result. Error if there can be no process.
std::string in_child(const std::function<std::string()>& make);

}  // namespace lapse
