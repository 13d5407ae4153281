// RUN: xdsl-opt %s -p pebble-expand-recurrences | filecheck %s

// Weights that a call brings are no layer of ours.
// CHECK: pebble.recurrence
func.func @main(%x: tensor<?x?x1xf32>, %w: tensor<1x2x1xf32>) -> tensor<?x1x?x2xf32> {
  %r = pebble.constant dense<1.0> : tensor<1x2x2xf32>
  %y, %h = pebble.recurrence "rnn" "forward" %x, %w, %r activations [#pebble.activation<tanh>] : (tensor<?x?x1xf32>, tensor<1x2x1xf32>, tensor<1x2x2xf32>) -> (tensor<?x1x?x2xf32>, tensor<1x?x2xf32>)
  func.return %y : tensor<?x1x?x2xf32>
}
