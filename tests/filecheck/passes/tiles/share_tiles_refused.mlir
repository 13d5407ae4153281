// RUN: xdsl-opt %s -p 'pebble-share-tiles{threads=0}' --verify-diagnostics | filecheck %s

// CHECK: pebble-share-tiles: expected threads of 1 or more, got 0
func.func @main(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  func.return %x : tensor<?x1xf32>
}
