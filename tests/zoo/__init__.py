"""The zoo: policies as people build them, from released packages, each exported and proven on both runtimes."""
