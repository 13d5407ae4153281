// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s

func.func @lstm(%x: tensor<?x?x4xf32>, %n: !pebble.value<"tensor(int32)">, %h: tensor<2x?x8xf32>, %c: tensor<2x?x8xf32>) {
  %w = pebble.constant dense<1.0> : tensor<2x32x4xf32>
  %r = pebble.constant dense<1.0> : tensor<2x32x8xf32>
  %b = pebble.constant dense<1.0> : tensor<2x64xf32>
  %p = pebble.constant dense<1.0> : tensor<2x24xf32>
  %y, %last, %cell = pebble.recurrence "lstm" "bidirectional" %x, %w, %r bias %b : tensor<2x64xf32> lengths %n start_h %h : tensor<2x?x8xf32> start_c %c : tensor<2x?x8xf32> peepholes %p : tensor<2x24xf32> activations [#pebble.activation<sigmoid>, #pebble.activation<tanh>, #pebble.activation<tanh>, #pebble.activation<sigmoid>, #pebble.activation<relu>, #pebble.activation<tanh>] clip 3.0 : (tensor<?x?x4xf32>, tensor<2x32x4xf32>, tensor<2x32x8xf32>) -> (tensor<?x2x?x8xf32>, tensor<2x?x8xf32>, tensor<2x?x8xf32>)
  func.return
}

// CHECK: %y, %last, %cell = pebble.recurrence "lstm" "bidirectional" %x, %w, %r bias %b : tensor<2x64xf32> lengths %n start_h %h : tensor<2x?x8xf32> start_c %c : tensor<2x?x8xf32> peepholes %p : tensor<2x24xf32> activations [#pebble.activation<sigmoid>, #pebble.activation<tanh>, #pebble.activation<tanh>, #pebble.activation<sigmoid>, #pebble.activation<relu>, #pebble.activation<tanh>] clip 3.000000e+00 : (tensor<?x?x4xf32>, tensor<2x32x4xf32>, tensor<2x32x8xf32>) -> (tensor<?x2x?x8xf32>, tensor<2x?x8xf32>, tensor<2x?x8xf32>)

func.func @gru(%x: tensor<?x?x4xf32>) {
  %w = pebble.constant dense<1.0> : tensor<1x6x4xf32>
  %r = pebble.constant dense<1.0> : tensor<1x6x2xf32>
  %y, %last = pebble.recurrence "gru" "reverse" %x, %w, %r activations [#pebble.activation<sigmoid>, #pebble.activation<tanh>] linear_before_reset : (tensor<?x?x4xf32>, tensor<1x6x4xf32>, tensor<1x6x2xf32>) -> (tensor<?x1x?x2xf32>, tensor<1x?x2xf32>)
  func.return
}

// CHECK: %y, %last = pebble.recurrence "gru" "reverse" %x, %w, %r activations [#pebble.activation<sigmoid>, #pebble.activation<tanh>] linear_before_reset : (tensor<?x?x4xf32>, tensor<1x6x4xf32>, tensor<1x6x2xf32>) -> (tensor<?x1x?x2xf32>, tensor<1x?x2xf32>)

func.func @loop(%x: tensor<?x?x2xf32>, %n: !pebble.value<"tensor(int32)">, %s: tensor<?x2xf32>) {
  %y, %h = pebble.scan %x starts %s : tensor<?x2xf32> lengths %n reverse : tensor<?x?x2xf32> -> (tensor<?x?x2xf32>, tensor<?x2xf32>) {
  ^bb0(%step: tensor<?x2xf32>, %before: tensor<?x2xf32>):
    %after = pebble.add %step, %before : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
    pebble.yield %after : tensor<?x2xf32>
  }
  func.return
}

// CHECK: %y, %h = pebble.scan %x starts %s : tensor<?x2xf32> lengths %n reverse : tensor<?x?x2xf32> -> (tensor<?x?x2xf32>, tensor<?x2xf32>) {
// CHECK-NEXT: ^bb0(%step: tensor<?x2xf32>, %before: tensor<?x2xf32>):
// CHECK-NEXT:   %after = pebble.add %step, %before
// CHECK-NEXT:   pebble.yield %after : tensor<?x2xf32>
