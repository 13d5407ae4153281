// RUN: xdsl-opt %s -p 'pebble-reorder-neurons{order=alphabetical}' --verify-diagnostics | filecheck %s

// CHECK: pebble-reorder-neurons: expected an order of auto, identity, cuthill-mckee, spectral, passes, support, counts, dealt, got 'alphabetical'
func.func @main(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  func.return %x : tensor<?x1xf32>
}
