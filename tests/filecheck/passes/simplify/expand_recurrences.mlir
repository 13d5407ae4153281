// RUN: xdsl-opt %s -p pebble-expand-recurrences --split-input-file | filecheck %s

// What reads inputs is a layer of all steps, with both biases; the state's layer is in the loop.
// CHECK-LABEL: @rnn
func.func @rnn(%x: tensor<?x?x1xf32>, %s: tensor<1x?x2xf32>) -> (tensor<?x1x?x2xf32>, tensor<1x?x2xf32>) {
  %w = pebble.constant dense<[[[1.0], [2.0]]]> : tensor<1x2x1xf32>
  %r = pebble.constant dense<[[[3.0, 4.0], [5.0, 6.0]]]> : tensor<1x2x2xf32>
  %b = pebble.constant dense<[[1.0, 2.0, 30.0, 40.0]]> : tensor<1x4xf32>
  // CHECK: [[S:%.*]] = pebble.reshape %s to <[d1, 2]>
  // CHECK-NEXT: [[B:%.*]] = pebble.constant dense<[3.100000e+01, 4.200000e+01]> : tensor<2xf32>
  // CHECK-NEXT: [[W:%.*]] = pebble.constant dense<{{\[\[}}1.000000e+00, 2.000000e+00]]> : tensor<1x2xf32>
  // CHECK-NEXT: [[P:%.*]] = pebble.linear %x, [[W]] bias [[B]] {pebble.node = "cell"}
  // CHECK-NEXT: [[R:%.*]] = pebble.constant dense<{{\[\[}}3.000000e+00, 5.000000e+00], [4.000000e+00, 6.000000e+00]]> : tensor<2x2xf32>
  // CHECK-NEXT: [[Y:%.*]], [[H:%.*]] = pebble.scan [[P]] starts [[S]] : tensor<?x2xf32> : tensor<?x?x2xf32>
  // CHECK-NEXT: ^bb0([[STEP:%.*]]: tensor<?x2xf32>, [[BEFORE:%.*]]: tensor<?x2xf32>):
  // CHECK-NEXT:   [[L:%.*]] = pebble.linear [[BEFORE]], [[R]] {pebble.node = "cell"}
  // CHECK-NEXT:   [[SUM:%.*]] = pebble.add [[STEP]], [[L]]
  // CHECK-NEXT:   [[AFTER:%.*]] = pebble.activate <tanh> [[SUM]]
  // CHECK-NEXT:   pebble.yield [[AFTER]]
  // CHECK: %y = pebble.reshape [[Y]] to <[d0, 1, d1, 2]>
  // CHECK-NEXT: %h = pebble.reshape [[H]] to <[1, d0, 2]>
  %y, %h = pebble.recurrence "rnn" "forward" %x, %w, %r bias %b : tensor<1x4xf32> start_h %s : tensor<1x?x2xf32> activations [#pebble.activation<tanh>] {pebble.node = "cell"} : (tensor<?x?x1xf32>, tensor<1x2x1xf32>, tensor<1x2x2xf32>) -> (tensor<?x1x?x2xf32>, tensor<1x?x2xf32>)
  func.return %y, %h : tensor<?x1x?x2xf32>, tensor<1x?x2xf32>
}

// -----

// Directions are loops of their own; each has its part of the weights, and its bound.
// CHECK-LABEL: @both
func.func @both(%x: tensor<?x?x1xf32>) -> tensor<?x2x?x1xf32> {
  %w = pebble.constant dense<[[[1.0]], [[2.0]]]> : tensor<2x1x1xf32>
  %r = pebble.constant dense<[[[3.0]], [[4.0]]]> : tensor<2x1x1xf32>
  // CHECK: pebble.constant dense<1.000000e+00>
  // CHECK: pebble.constant dense<3.000000e+00>
  // CHECK: [[F:%.*]], {{%.*}} = pebble.scan %{{[^ ]*}} : tensor<?x?x1xf32>
  // CHECK:   pebble.activate <clip(-2.0, 2.0)>
  // CHECK:   pebble.activate <tanh>
  // CHECK: pebble.constant dense<2.000000e+00>
  // CHECK: pebble.constant dense<4.000000e+00>
  // CHECK: [[B:%.*]], {{%.*}} = pebble.scan %{{[^ ]*}} reverse : tensor<?x?x1xf32>
  // CHECK:   pebble.activate <relu>
  // CHECK: %y = pebble.concat {{%.*}}, {{%.*}} axis 1
  %y, %h = pebble.recurrence "rnn" "bidirectional" %x, %w, %r activations [#pebble.activation<tanh>, #pebble.activation<relu>] clip 2.0 : (tensor<?x?x1xf32>, tensor<2x1x1xf32>, tensor<2x1x1xf32>) -> (tensor<?x2x?x1xf32>, tensor<2x?x1xf32>)
  func.return %y : tensor<?x2x?x1xf32>
}
