// Libraries of this project that are loaded on first use only, because they bring others that most runs do without.
#pragma once

#include <string>

namespace lapse {

enum class Symbols {
  kShared,  ///< as usual: the process's come first
  kOwn,     ///< the plugin's own, and those of what it is linked with, come first for it
};

/// The address of `entry` in `library`, a file beside the library or the program that this code is part of. Error,
/// beginning with `what` ("subwords"), if the library cannot be loaded or has no such entry.
void* plugin_entry(const std::string& what, const std::string& library, const char* entry, Symbols symbols);

}  // namespace lapse
