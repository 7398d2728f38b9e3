#include "lapse/data/sentencepiece.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "lapse/core/error.h"
#include "lapse/core/file.h"

namespace lapse {
namespace {

constexpr const char* kPlugin = "liblapse_sentencepiece.so";

// The plugin's own symbols come first for it and for what it is linked with, and nobody else sees them (the default).
// The address sanitizer refuses RTLD_DEEPBIND; its tests of the tokenizer run without libtorch.
#ifdef __SANITIZE_ADDRESS__
constexpr int kMode = RTLD_NOW;
#else
constexpr int kMode = RTLD_NOW | RTLD_DEEPBIND;
#endif

/// Beside the library, or the program, that this code is part of.
fs::path plugin_path() {
  std::error_code ignored;
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&sentencepiece_plugin), &here) != 0 && here.dli_fname != nullptr) {
    const fs::path path = fs::weakly_canonical(here.dli_fname, ignored).parent_path() / kPlugin;
    if (fs::exists(path, ignored)) return path;
  }
  return fs::read_symlink("/proc/self/exe", ignored).parent_path() / kPlugin;
}

const SentencePiece& load_plugin() {
  const fs::path path = plugin_path();
  void* library = dlopen(path.c_str(), kMode);
  void* entry = library ? dlsym(library, "lapse_sentencepiece") : nullptr;
  if (entry == nullptr) fail(fmt::format("subwords need the library {}: {}", kPlugin, dlerror()));
  return *reinterpret_cast<const SentencePiece* (*)()>(entry)();
}

}  // namespace

const SentencePiece& sentencepiece_plugin() {
  static const SentencePiece& plugin = load_plugin();
  return plugin;
}

}  // namespace lapse
