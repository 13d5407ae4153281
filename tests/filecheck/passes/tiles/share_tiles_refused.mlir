// RUN: xdsl-opt %s -p 'pebble-share-tiles{threads=0}' --verify-diagnostics | filecheck %s

// CHECK: pebble-share-tiles: threads is 0, expected 1 or more
func.func @main(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  func.return %x : tensor<?x1xf32>
}
