// RUN: not xdsl-opt %s -p 'pebble-differentiate{loss="hinge"}' 2>&1 | filecheck %s --check-prefix LOSS
// RUN: not xdsl-opt %s -p 'pebble-differentiate{loss="crps"}' 2>&1 | filecheck %s --check-prefix CRPS
// RUN: not xdsl-opt %s -p pebble-differentiate 2>&1 | filecheck %s

// LOSS: pebble-differentiate: unknown loss 'hinge', accepted are mse, cross-entropy, crps
// CRPS: pebble-differentiate: crps of 3 outputs, expected means and as many deviations
// CHECK: pebble-differentiate: node 'Prelu_1': pebble.prelu has no derivative, accepted are pebble.activate, pebble.add
func.func @main(%x: tensor<?x2xf32>) -> tensor<?x3xf32> {
  %w = pebble.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
  %s = pebble.constant dense<[0.5, 1.0, 1.5]> : tensor<3xf32>
  %h = pebble.linear %x, %w : (tensor<?x2xf32>, tensor<2x3xf32>) -> tensor<?x3xf32>
  %y = pebble.prelu %h, %s {pebble.node = "Prelu_1"} : (tensor<?x3xf32>, tensor<3xf32>) -> tensor<?x3xf32>
  func.return %y : tensor<?x3xf32>
}
