// RUN: xdsl-opt %s -p 'pebble-sparsify{threshold=1.5}' --verify-diagnostics | filecheck %s

// CHECK: pebble-sparsify: expected a threshold of 0 to 1, got 1.5
func.func @main(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  func.return %x : tensor<?x2xf32>
}
